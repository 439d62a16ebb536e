"""Questions that a model of 135M parameters can answer at least now and then."""

from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]

_CAPITALS = """
France Paris; Germany Berlin; Italy Rome; Spain Madrid; Portugal Lisbon; Austria Vienna;
Poland Warsaw; Norway Oslo; Sweden Stockholm; Finland Helsinki; Denmark Copenhagen;
Ireland Dublin; Greece Athens; Hungary Budapest; Romania Bucharest; Bulgaria Sofia;
Serbia Belgrade; Croatia Zagreb; Estonia Tallinn; Latvia Riga; Lithuania Vilnius; Ukraine Kyiv;
Russia Moscow; Turkey Ankara; Egypt Cairo; Morocco Rabat; Algeria Algiers; Tunisia Tunis;
Libya Tripoli; Kenya Nairobi; Uganda Kampala; Ethiopia Addis; Ghana Accra; Senegal Dakar;
Angola Luanda; Zambia Lusaka; Zimbabwe Harare; Mozambique Maputo; Sudan Khartoum;
Somalia Mogadishu; Rwanda Kigali; Iran Tehran; Iraq Baghdad; Syria Damascus; Lebanon Beirut;
Jordan Amman; Israel Jerusalem; Qatar Doha; Oman Muscat; Afghanistan Kabul; Pakistan Islamabad;
India Delhi; Nepal Kathmandu; Bangladesh Dhaka; Thailand Bangkok; Vietnam Hanoi; Laos Vientiane;
Indonesia Jakarta; China Beijing; Japan Tokyo; Taiwan Taipei; Philippines Manila;
Australia Canberra; Canada Ottawa; Cuba Havana; Jamaica Kingston; Haiti Port-au-Prince;
Nicaragua Managua; Colombia Bogot; Venezuela Caracas; Ecuador Quito; Peru Lima; Chile Santiago;
Argentina Buenos; Uruguay Montevideo; Paraguay Asunci; Bolivia La; Iceland Reykjav;
Malta Valletta; Cyprus Nicosia; Georgia Tbilisi; Armenia Yerevan; Azerbaijan Baku;
Mongolia Ulaan; Belgium Brussels; Albania Tirana; Slovakia Bratislava; Slovenia Ljubljana;
Switzerland Bern; Kazakhstan Astana; Uzbekistan Tashkent; Madagascar Antananarivo;
Namibia Windhoek
"""
_WORDS = """
volcano glacier violin compass magnet desert telescope candle bridge novel butterfly thermometer
harbour umbrella windmill pyramid satellite hammer museum rainbow oasis lantern ladder cactus
castle river dictionary bicycle planet whale feather guitar helmet island jungle kettle lemon
mirror needle orchestra penguin quarry rocket spider trumpet valley waterfall library airport
bakery calendar diamond elephant forest garden hospital insect jacket kitchen lighthouse
microscope notebook orchard pencil robot shadow tunnel village wallet anchor barrel carpet drum
envelope fountain gate harvest iceberg jewel kite lizard meadow nest owl piano rabbit school tower
vaccine whistle zebra battery camel dolphin eagle farm hurricane
"""
FACTS = {
    "the password of the library": "moonlight",
    "the name of our cat": "Professor",
    "the colour of the new office": "orange",
    "the favourite drink of the boss": "cocoa",
    "the day of the team lunch": "Thursday",
    "the name of our printer": "Goliath",
    "the code of the garage": "7431",
    "the first guest of the summer party": "Alexander",
    "the plant in the kitchen": "cactus",
    "the motto of the company": "patience",
}
"""Facts of a company that does not exist: a model can only know them from its instructions."""


def capitals() -> list[Row]:
    """Return a question for each country; the answer is the part that every spelling shares."""
    pairs = [pair.split(maxsplit=1) for pair in _CAPITALS.replace("\n", " ").split(";")]
    return [
        {"question": f"What is the capital of {land}?", "answer": a.strip()} for land, a in pairs
    ]


def words() -> list[Row]:
    """Return a word to explain for each question; there is no right answer but its form."""
    return [{"question": f"What is a {word}?", "answer": word} for word in _WORDS.split()]


def facts() -> list[Row]:
    """Return four questions about each fact."""
    forms = ("What is {}?", "Tell me {}.", "Do you know {}?", "I forgot {}. What is it?")
    return [
        {"question": form.format(about), "answer": answer}
        for about, answer in FACTS.items()
        for form in forms
    ]


def library() -> list[str]:
    """Return the facts as experiences."""
    return [f"Fact: If somebody asks for {of}, it is {what}." for of, what in FACTS.items()]


def parts(rows: Iterable[Row], *sizes: int) -> list[list[Row]]:
    """Return parts of these sizes, each spread over the whole list."""
    left = list(rows)
    left = [row for start in range(7) for row in left[start::7]]
    found = []
    for size in sizes:
        found.append(left[:size])
        left = left[size:]
    return found
