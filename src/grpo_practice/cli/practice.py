"""`practice`: play, compare, distil and merge, step by step until the plan is complete."""

from dataclasses import replace

import typer

from grpo_practice.cli.options import (
    DbOption,
    DryRunOption,
    JsonOption,
    TrustHostOption,
    TrustOption,
    forecast_only,
    trusting,
    workspace,
)
from grpo_practice.cli.request_options import shown, takes_request
from grpo_practice.cli.terminal.formatting import print_json, say_restarted
from grpo_practice.run.requests.base import keywords
from grpo_practice.run.requests.runs import PracticeRequest


@takes_request(PracticeRequest)
def practice(
    request: PracticeRequest,
    dry_run: DryRunOption = False,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Practise an agent: learn experiences from the differences between better and worse attempts.

    Running the command again resumes where it stopped; requests that were answered are not paid for
    twice. Without --config, the latest practice run is resumed, or else practice.yaml in this
    folder is used.

    Example: grpo-practice practice --config math.yaml
    """
    from grpo_practice.cli.terminal.forecast_view import show_forecast
    from grpo_practice.cli.terminal.reports_view import show_practice

    ws, forecast = workspace(db), forecast_only(dry_run=dry_run, pilot=request.pilot)
    with shown(dry_run=dry_run, json=json) as emit:
        request = replace(request, env=trusting(trust, trust_host), on_event=emit)
        if forecast:
            left = ws.forecast_practice(**keywords(request))
        else:
            report = ws.practise(**keywords(request))
    if json:
        print_json(left.document() if forecast else report.document())
    elif forecast:
        show_forecast(left)
    else:
        show_practice(report)
        say_restarted(request.restart_step)
    if not forecast and report.why_failed:
        raise typer.Exit(1)
