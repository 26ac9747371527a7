"""The command `demo`: handwritten digits -> a folder with scores, summary, model and page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from recoslip.cli.options import Force, Json, Quiet, ScoresFormat, check_format
from recoslip.cli.page import make_page
from recoslip.cli.printing import print_outcome, print_training
from recoslip.cli.training import fit
from recoslip.console.messages import make_console
from recoslip.detectors.catalogue import AUTO


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write the results to.")] = Path("recoslip-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and dropout.")] = 0,
    device: Annotated[str, typer.Option(help="Device to train on: auto, cpu or cuda.")] = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
    force: Force = False,
    table_format: ScoresFormat = "csv",
) -> None:
    """See it work: handwritten digits, of which nobody told the detector that 9 exists."""
    from recoslip import output
    from recoslip.datasets.load import load_dataset
    from recoslip.detectors.registry import detector
    from recoslip.findings.analysis import analyse
    from recoslip.metrics import auroc
    from recoslip.shift import default_rotations

    scores_format = check_format(table_format)
    console = make_console(quiet or as_json)
    data = load_dataset("digits")
    graph, test = data.graph, data.split.test
    assert graph.categories is not None
    console.print("[bold]1,797 handwritten digits, each joined to the 10 images most like it.[/bold]")
    console.print(
        "The source holds digits 0 to 8. In the target their proportions are turned upside down, and there are 9s.\n"
        "The detector is told who is source and who is target, and no digit's name.\n"
    )
    with output.reserved(out, graph, replace=force or is_demo(out)) as write:
        model = detector(AUTO, random_state=seed, device=device)
        fitted, seconds = fit(model, graph, data.split, 0.0, default_rotations(graph), console)
        findings = analyse(fitted, graph)
        truth = {
            "auroc_test": auroc(data.novel, fitted.scores_, test),
            "auroc_target": auroc(data.novel, fitted.scores_, graph.is_target.numpy()),
            "novel_true": int(data.novel.sum()),
        }
        summary = output.summarise(findings, seconds) | {"dataset": "digits", "truth": truth}
        page = make_page(findings, "Handwritten digits: what is new?", console, image_shape=(8, 8))
        write(findings, summary, page, scores_format, {})
    if as_json:
        print(json.dumps(summary))
        return
    print_training(fitted, console)
    most_novel = graph.categories[findings.table().head(20)["id"].to_list()].tolist()
    digits = " ".join(f"[bold green]{d}[/]" if d == 9 else f"[red]{d}[/]" for d in most_novel)
    console.print(f"\nThe 20 most novel images are: {digits}")
    console.print(
        f"AU-ROC against the truth: [bold]{truth['auroc_test']:.3f}[/] on the {int(test.sum())} held-out target nodes, "
        f"{truth['auroc_target']:.3f} on all {summary['target']:,}"
    )
    print_outcome(summary, out, console, has_page=True)


def is_demo(folder: Path) -> bool:
    """Say whether a folder is the output of an earlier demo, which the next one may replace."""
    from recoslip.json_files import read_json

    try:
        return bool(read_json(folder.expanduser() / "summary.json").get("dataset") == "digits")
    except (OSError, ValueError):
        return False
