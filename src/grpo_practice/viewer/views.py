"""The viewer's pages by address."""

from collections.abc import Callable, Mapping

from grpo_practice.store import Store
from grpo_practice.viewer import (
    comparison_views,
    experience_views,
    group_views,
    list_views,
    rollout_views,
    run_views,
    search_views,
)
from grpo_practice.viewer.address import Page, Query

View = Callable[[Store, Query], Page]
"""Function that reads the data of a page; it writes nothing and opens nothing except the store."""

VIEWS: Mapping[str, View] = {
    "/": run_views.runs_page,
    "/run": run_views.run_page,
    "/live": run_views.live_page,
    "/step": group_views.step_page,
    "/group": group_views.group_page,
    "/rollout": rollout_views.rollout_page,
    "/text": rollout_views.text_page,
    "/rollouts": list_views.rollouts_page,
    "/questions": list_views.questions_page,
    "/failures": list_views.failures_page,
    "/experiences": experience_views.experiences_page,
    "/experience": experience_views.experience_page,
    "/compare": comparison_views.compare_page,
    "/search": search_views.search_page,
}
"""Path → function that reads its page."""
