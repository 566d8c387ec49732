"""``coterie methods``: the registered methods, and what each needs and takes."""

import json
import sys
from typing import Any

from coterie.cli.listing import print_listing
from coterie.cli.options import MethodsRequest
from coterie.methods import Method, get_methods


def run(request: MethodsRequest) -> None:
    """Print the methods."""
    methods = [describe_method(method) for method in get_methods()]
    if request.json:
        sys.stdout.write(json.dumps(methods, indent=2, ensure_ascii=False) + "\n")
        return
    header = ("method", "what it is", "number of clusters", "needs", "options")
    rows = [
        (each["name"], each["summary"], each["n_clusters"], ", ".join(each["needs"]), " ".join(each["options"]))
        for each in methods
    ]
    print_listing(header, rows)


def describe_method(method: Method) -> dict[str, Any]:
    """Describe a method as plain values."""
    number = "found, or -k"
    if not method.finds_n_clusters:
        number = "-k"
    elif not method.takes_n_clusters:
        number = "found"
    return {
        "name": method.name,
        "summary": method.summary,
        "n_clusters": number,
        "needs": list(method.packages),
        "learns_from": list(method.learns_from),
        "options": [option.flag for option in method.options],
    }
