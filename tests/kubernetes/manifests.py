#!/usr/bin/env python3
"""The objects that docs/kubernetes.md shows, and whether a cluster would take them: by schema.json,
which names every field that they use and no other, and demands what `restricted` pods must say.

manifests.py: prints what is wrong, and ends with 1 then.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / name) for name in ("docs", "ci")]
from check_yaml import load, schema_problems  # noqa: E402  (found by the path above)
from pages import Page  # noqa: E402

PAGE = "docs/kubernetes.md"


def manifests():
    for fence in Page(ROOT / PAGE).fences:
        if fence.language == "yaml":
            yield from load(fence.text)


def pod_spec(document):
    return document["spec"].get("template", document)["spec"]


def set_problems(document):
    """A set's pods are those of its service, and its program knows how many there are."""
    if document["kind"] != "StatefulSet":
        return
    spec = document["spec"]
    if spec["selector"]["matchLabels"] != spec["template"]["metadata"]["labels"]:
        yield "the set does not select the pods that it makes"
    services = {one["metadata"]["name"]: one for one in manifests() if one["kind"] == "Service"}
    service = services.get(spec["serviceName"])
    if service is None or service["spec"]["selector"] != spec["selector"]["matchLabels"]:
        yield f"no service of the page gives its pods names: {spec['serviceName']}"
    for container in pod_spec(document)["containers"]:
        env = {one["name"]: one["value"] for one in container.get("env", [])}
        if env.get("FEROCE_GAS_SIZE", str(spec["replicas"])) != str(spec["replicas"]):
            yield f"{container['name']}: FEROCE_GAS_SIZE is not the number of replicas"


def mount_problems(document):
    """Every mount has its volume."""
    spec = pod_spec(document)
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    for container in spec.get("initContainers", []) + spec.get("containers", []):
        for mount in container["volumeMounts"]:
            if mount["name"] not in volumes:
                yield f"{container['name']} mounts {mount['name']}, which is no volume"


def image_problems(document):
    """An image of ours is loaded, not pulled: without a tag a cluster would ask a registry."""
    for container in pod_spec(document).get("initContainers", []):
        if ":" not in container["image"] or "imagePullPolicy" not in container:
            yield f"{container['name']}: the image {container['image']} would be pulled"


def problems(document):
    return (list(schema_problems(HERE / "schema.json", document)) or
            [*mount_problems(document), *image_problems(document),
             *set_problems(document)])


def main():
    documents = list(manifests())
    found = [problem for document in documents for problem in problems(document)]
    for problem in found:
        print(f"{PAGE}: {problem}")
    print(f"{len(documents)} documents, {len(found)} problems")
    sys.exit(1 if found or not documents else 0)


if __name__ == "__main__":
    main()
