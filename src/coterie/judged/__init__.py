"""Coterie, the default: many candidate partitions, scored by one pretrained judge. Start at estimator.py."""

from coterie.methods import Method, Option

METHOD = Method(
    name="coterie",
    estimator="coterie.judged.estimator:Coterie",
    summary="many candidate partitions, scored by a pretrained network",
    options=(
        Option(
            "--effort",
            "effort",
            "how many candidates to try",
            choices=("fast", "balanced"),
            default="balanced",
        ),
        Option(
            "--granularity",
            "granularity",
            "above 0 for more and smaller clusters, below 0 for fewer and larger ones",
            kind=float,
            default="0",
            metavar="G",
        ),
        Option(
            "--weight",
            "column_weights",
            "how much a column counts, such as plan=0.5, instead of 1; 0 leaves it out. Can be repeated",
            kind=dict,
            metavar="COL=W",
        ),
        Option(
            "--missing",
            "missing",
            "ignore missing values, or add an indicator of them to each column that has some",
            choices=("ignore", "indicator"),
            default="ignore",
        ),
        Option(
            "--metric",
            "metric",
            "compare rows column by column (euclidean), or by their direction, as embeddings (cosine)",
            choices=("auto", "cosine", "euclidean"),
            default="auto",
        ),
        Option(
            "--encoder",
            "encoder",
            "cluster embeddings of one text column or of images: sentence-transformers:NAME, timm:NAME, or a folder of "
            "weights",
            metavar="ENCODER",
        ),
        Option(
            "--text",
            "text",
            "cluster a column of texts by what they say, beside the other columns. Can be repeated",
            kind=list,
            metavar="COL",
        ),
        Option("--cache", "cache", "folder that keeps the embeddings of an encoder", metavar="DIR"),
        Option(
            "--noise",
            "noise",
            "label rows far from all others, or in a sparse background, as noise (cluster -1)",
            kind=bool,
            former=("--outliers",),
        ),
        Option("--allow-single", "allow_single", "answer with one cluster if that is more likely than not", kind=bool),
        Option("--several", "allow_single", "never answer with one cluster", kind=bool, value=False),
    ),
)
