"""Run benchmarks, draw their figures, render their results, and train the networks that they compare with.

python -m benchmarks list | run SUITE | render | figures SUITE | train RECIPE
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import baselines, runner
from benchmarks.lines import REPOSITORY, read_lines
from benchmarks.suite import load_suite, suite_names
from coterie.errors import CoterieError
from coterie.recipes import read_recipe, run_recipe


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if arguments[:1] == ["render"]:
            status: int = import_module("benchmarks.render").main(arguments[1:])
            return status
        options = _parser().parse_args(arguments)
        return int(options.function(options))
    except CoterieError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("list", help="list the suites").set_defaults(function=_list)
    commands.add_parser("render", help="write the results pages (see render --help)")
    run = commands.add_parser("run", help="measure what a results file lacks")
    run.set_defaults(function=_run)
    run.add_argument("suite", choices=suite_names(), metavar="SUITE")
    run.add_argument("--only", action="append", default=[], metavar="NAME", help="a method or a data set; repeatable")
    run.add_argument("--seeds", metavar="0,1,2", help="seeds, instead of those of the suite")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a value of the suite file")
    run.add_argument("--results", type=Path, help="results file, instead of that of the suite")
    run.add_argument("--again", action="store_true", help="remove the chosen lines first and measure them again")
    run.add_argument("--dry-run", action="store_true", help="only print what would be measured")
    run.add_argument("--smoke", action="store_true", help="everything small, to see that it works; needs --results")
    figures = commands.add_parser("figures", help="draw the figures of a suite")
    figures.set_defaults(function=_figures)
    figures.add_argument("suite", metavar="SUITE", help="whose figures to draw; another word lists all figures")
    figures.add_argument("--only", action="append", default=[], metavar="FIGURE", help="a figure; repeatable")
    figures.add_argument("--results", type=Path, help="results file, instead of that of the suite")
    figures.add_argument("--folder", type=Path, default=REPOSITORY / "docs" / "figures", help="where figures go")
    train = commands.add_parser("train", help="train a network as a recipe describes, baselines included")
    train.set_defaults(function=_train)
    train.add_argument("recipe", type=Path, metavar="RECIPE")
    for command in (run, figures, train):
        command.add_argument("--runs", type=Path, help="folder of training runs, to resume from")
    return parser


def _list(_: argparse.Namespace) -> int:
    for name in suite_names():
        suite = load_suite(name)
        print(f"{name:24} {len(read_lines(suite.results)):5} lines  {suite['title']}")
    return 0


def _run(options: argparse.Namespace) -> int:
    if options.smoke and options.results is None:
        raise SystemExit("--smoke needs --results PATH, so that its lines do not mix with measured ones.")
    seeds = [] if options.seeds is None else [f"seeds=[{options.seeds}]"]
    suite = load_suite(
        options.suite,
        results=options.results,
        run_folder=options.runs,
        overrides=[*options.set, *seeds],
        smoke=options.smoke,
    )
    return int(runner.run(suite, options.only, again=options.again, dry_run=options.dry_run) > 0)


def _figures(options: argparse.Namespace) -> int:
    figures = import_module("benchmarks.figures")
    figures.draw(options.suite, options.only, options.folder, options.runs, options.results)
    return 0


def _train(options: argparse.Namespace) -> int:
    baselines.register()
    recipe = read_recipe(options.recipe)
    print(run_recipe(recipe, options.runs or Path("runs") / recipe.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
