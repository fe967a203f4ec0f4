#!/usr/bin/env python3
"""Shows that manifests.py finds what it is to find: each test plants one mistake."""
import unittest

from manifests import manifests, problems


class Manifests(unittest.TestCase):
    def setUp(self):
        self.pod = next(document for document in manifests() if document["kind"] == "Pod")
        self.spec = self.pod["spec"]
        self.assertEqual(problems(self.pod), [])

    def test_privileges(self):
        self.spec["containers"][0]["securityContext"]["privileged"] = True
        self.assertNotEqual(problems(self.pod), [])

    def test_the_host(self):
        self.spec["hostNetwork"] = True
        self.assertNotEqual(problems(self.pod), [])

    def test_root(self):
        self.spec["securityContext"]["runAsUser"] = 0
        self.assertNotEqual(problems(self.pod), [])

    def test_files_of_the_host(self):
        self.spec["volumes"].append({"name": "x", "hostPath": {"path": "/dev"}})
        self.assertNotEqual(problems(self.pod), [])

    def test_devices(self):
        self.spec["containers"][0]["resources"] = {"limits": {"rdma/hca": 1}}
        self.assertNotEqual(problems(self.pod), [])

    def test_a_misspelt_field(self):
        self.spec["initContainer"] = self.spec.pop("initContainers")
        self.assertNotEqual(problems(self.pod), [])

    def test_a_mount_without_a_volume(self):
        self.spec["volumes"][0]["name"] = "other"
        self.assertIn("server mounts feroce, which is no volume", problems(self.pod))

    def test_an_image_that_would_be_pulled(self):
        container = self.spec["initContainers"][0]
        container["image"] = "feroce"
        self.assertIn("feroce: the image feroce would be pulled", problems(self.pod))
        container["image"] = "feroce:1"
        del container["imagePullPolicy"]
        self.assertIn("feroce: the image feroce:1 would be pulled", problems(self.pod))


class Sets(unittest.TestCase):
    def setUp(self):
        self.set = next(one for one in manifests() if one["kind"] == "StatefulSet")
        self.assertEqual(problems(self.set), [])

    def test_another_size_than_its_own(self):
        self.set["spec"]["replicas"] += 1
        self.assertIn("node: FEROCE_GAS_SIZE is not the number of replicas", problems(self.set))

    def test_pods_that_it_does_not_select(self):
        self.set["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
        self.assertIn("the set does not select the pods that it makes", problems(self.set))

    def test_a_service_that_is_not_there(self):
        self.set["spec"]["serviceName"] = "other"
        self.assertIn("no service of the page gives its pods names: other", problems(self.set))

    def test_privileges(self):
        template = self.set["spec"]["template"]
        template["spec"]["containers"][0]["securityContext"]["privileged"] = True
        self.assertNotEqual(problems(self.set), [])


if __name__ == "__main__":
    unittest.main()
