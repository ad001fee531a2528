"""The options that several commands have, each declared once."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text (docs/reference/json.md).")]
Capture = Annotated[str, typer.Argument(help="A capture: a file, or a folder where the format is one.")]
Program = Annotated[str, typer.Argument(help="A tile program: a Python file.")]
CaptureOrProgram = Annotated[str, typer.Argument(help="A capture (a file, or a folder), or a tile program (.py).")]
Arguments = Annotated[list[str] | None, typer.Argument(help="The program's own arguments, after --.")]
Kernels = Annotated[str | None, typer.Option("--kernels", help="Kernels of interest, a regular expression.")]
RingSlots = Annotated[
    int | None,
    typer.Option(
        "--ring-slots",
        min=1,
        help="Slots of the ring between cube and vector cores where it goes one way, else the chip's; where it goes "
        "both ways each has half, at least 2. 8 is the compiler of July 2026.",
    ),
]
Runtime = Annotated[
    str,
    typer.Option(
        "--runtime",
        metavar="tmr|hbg",
        help="The runtime that schedules, as built in August 2026: tmr (the device submits while it runs) or hbg (the "
        "host builds the graph). Else what the program asks for, or tmr by the chip's file.",
    ),
]
Device = Annotated[str, typer.Option("--device", help="The chip: a name, or a TOML file of your own.")]
ProgramDevice = Annotated[
    str,
    typer.Option(
        "--device",
        help="The chip: a name, or a TOML file of your own. Else that of the program's platform, or ascend910b1.",
        show_default=False,
    ),
]
ProgramNumber = Annotated[
    int | None, typer.Option("--program", help="Which of several that the file runs, counted from 0.")
]
Jitter = Annotated[int | None, typer.Option("--jitter", min=0, help="Noise on the blocks' times, with this seed.")]
Skew = Annotated[
    float | None,
    typer.Option("--skew", min=0, max=1e7, metavar="µs", help="From the launch of a rank to that of the next, in µs."),
]
Measured = Annotated[
    str | None,
    typer.Option(
        "--measured",
        metavar="OLD.py=CAPTURE",
        help="A capture of the program before the change: predict the change on top of it (howto/anchor.md). OLD.py "
        "runs with the arguments after --, without --set.",
    ),
]
Html = Annotated[str | None, typer.Option("--html", help="Also write a self-contained page here.")]
Md = Annotated[str | None, typer.Option("--md", help="Also write Markdown here, ready to post.")]
Wide = Annotated[bool, typer.Option("--wide", help="Print every column of the tables (the page of columns).")]
Areas = Annotated[str | None, typer.Option("--areas", help="TOML rules for areas (docs/understand/numbers.md).")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="NAME=value: an option, constant, field (MODEL.tiles.tk) or variable.")
]
Step = Annotated[list[int] | None, typer.Option("--step", help="Only these steps; may be repeated.")]
Steps = Annotated[bool, typer.Option("--steps", help="Every step of a capture is a run of its own.")]
Rank = Annotated[
    int | None,
    typer.Option("--rank", min=0, help="Only this rank of several, or this device of a capture that has several."),
]
Results = Annotated[
    str | None,
    typer.Option("--results", help="Keep results here (JSON lines); those that stand there are not run."),
]
Engine = Annotated[str, typer.Option("--engine", help="processes, or ray (the extra `ray`, RAY_ADDRESS).")]
Pass = Annotated[int | None, typer.Option("--pass", help="Only this forward pass, as `forward` lists them.")]
Values = Annotated[
    bool, typer.Option("--values/--shapes", help="Compute, where values decide what runs, or only record shapes.")
]
Sarif = Annotated[str | None, typer.Option("--sarif", help="Also write SARIF for code review here.")]
Top = Annotated[int, typer.Option(min=1, help="Variants shown.")]
