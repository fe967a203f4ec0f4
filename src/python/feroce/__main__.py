"""python -m feroce: the command."""
from feroce import main

main()
