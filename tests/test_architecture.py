"""Six layers, each a folder; a module imports from its own layer or a lower one, and no two import each other."""

import ast
from pathlib import Path

import pytest

import recoslip

PACKAGE = Path(recoslip.__file__).parent
# Lowest first. The package's docstring says what each holds; the modules beside the folders import from all.
LAYERS = ("base", "data", "learning", "inference", "pipeline", "products")
ABOVE = ("__init__", "__main__")
DEEPEST = 2  # folders below the package


def module_name(path: Path) -> str:
    return ".".join(("recoslip", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def imported(path: Path) -> set[str]:
    """Modules of ours that a file imports, at the top, inside functions, and for type checking."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "recoslip":
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in submodules}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] == "recoslip"}
    return found - {module_name(path)}


IMPORTS = {name: imported(path) for name, path in MODULES.items()}


def layer(module: str) -> int:
    """The number of a module's layer, counted from below."""
    name = module.split(".")[1] if "." in module else "__init__"
    return -1 if name == "_version" else (*LAYERS, *ABOVE).index(name)


def test_every_module_has_its_layer():
    assert {module.split(".")[1] for module in MODULES if module.count(".") > 1} == set(LAYERS)
    assert all(layer(module) >= -1 for module in MODULES)
    assert max(len(path.relative_to(PACKAGE).parts) for path in MODULES.values()) <= DEEPEST + 1


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_downwards(module):
    assert [name for name in IMPORTS[module] if layer(name) > layer(module)] == []


def test_no_module_imports_another_in_a_circle():
    left = {module: set(names) for module, names in IMPORTS.items()}
    while free := [module for module, names in left.items() if not names & set(left)]:
        for module in free:
            del left[module]
    assert not left


def imported_at_once(path: Path) -> set[str]:
    """Libraries that a file imports when it is imported, those for type checking left out."""
    found: set[str] = set()
    left: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
        is_lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        left += [] if is_lazy else list(ast.iter_child_nodes(node))
    return found


def test_one_folder_alone_needs_pytorch():
    users = {name for name, path in MODULES.items() if imported_at_once(path) & {"torch", "torch_geometric", "triton"}}
    assert users
    assert {name.rpartition(".")[0] for name in users} == {"recoslip.learning.networks"}


# Calls that change files outside of base/files.py, by module, and why they may be there.
ALLOWED = {
    ("learning.networks.batches", "truncate"),  # a temporary file without a name
    ("data.datasets.load", "symlink_to"),  # in a temporary folder
    ("data.packed.writer", "save"),  # where base/files.py says
    ("data.packed.reader", "open_memmap"),
    ("products.review.journal", "open"),  # SQLite's file
    ("products.cli.signals", "open"),  # the null device
    ("data.tables.table_encoder", "rename"), ("products.review.decision_tables", "rename"),  # columns
}  # fmt: skip
CHANGES = {
    "unlink", "rmtree", "rename", "renames", "remove", "rmdir", "removedirs", "write_text", "write_bytes", "touch",
    "truncate", "copyfile", "copytree", "copy2", "move", "symlink_to", "hardlink_to", "link", "mkdtemp", "mkstemp",
    "savez", "tofile", "open_memmap",
}  # fmt: skip


def changes_of_files(path: Path) -> set[str]:
    """Names of the calls that change files, or may; a `replace` with one argument is that of a path."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        given = [*node.args, *(each.value for each in node.keywords if each.arg == "mode")]
        modes = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        is_os = ast.unparse(node.func) == "os.open"
        writes = any(set(mode) & set("wax+") and set(mode) <= set("rwaxbt+") for mode in modes)
        moves = name == "replace" and isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords
        if name in CHANGES or moves or ast.unparse(node.func) == "np.save" or (name == "open" and (is_os or writes)):
            found.add(name)
    return found


def test_files_are_changed_by_one_module_alone():
    found = {(name.partition(".")[2], call) for name, path in MODULES.items() for call in changes_of_files(path)}
    assert {each for each in found if each[0] != "base.files"} <= ALLOWED
    assert {("base.files", call) for call in ("unlink", "replace", "open", "rename")} <= found
