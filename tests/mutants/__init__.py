"""Mutation testing: the tests must notice each change of a list of wrong changes.

Each YAML file of this folder lists changes of one subpackage, by source file. `mutant` describes and applies them,
`runner` runs the tests on a copy of the project, `__main__` is the command:
``python -m tests.mutants``, or ``make mutants``.
"""
