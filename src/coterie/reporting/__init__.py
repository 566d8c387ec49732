"""One self-contained HTML page that shows and explains a clustering. Start at page.py."""
