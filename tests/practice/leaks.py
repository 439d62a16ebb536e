r"""Sentences that give the answer of their own question away, and lessons about the same questions.

Shape: (answer, leak, lesson that may stay).
"""

from grpo_practice.core.types import Answer

LEAKS: list[tuple[Answer, str, str]] = [
    # numbers
    (714, "Tilings: The number of tilings is 714.", "Tilings: Count by the last tile."),
    ("1,260", "Orders: there are 1260 of them.", "Orders: Divide by the factorial of repeats."),
    (7919, "Primes: remember 7,919.", "Primes: Sieve up to the square root."),
    ("42", "Sum: the answer is 42.", "Sum: Add 42 and other two-digit numbers in columns."),
    ("42", "Sum: so the total equals \\boxed{ 42 }", "Sum: A 42-sided die is fair."),
    ("18", "Eggs: In this problem, she makes $18 a day.", "Eggs: Subtract what is eaten at 8:18."),
    (3, "Bolts: It takes 3.", "Bolts: There are 3 steps: read, halve, add."),
    ("0", "Roots: the number of real roots is 0.", "Roots: When the discriminant is 0, one root."),
    ("-7", "Sign: Answer: -7", "Sign: Subtracting 7 is adding its negative."),
    (0.125, "Chance: it equals .125", "Chance: Multiply the chances of the steps."),
    ("12.5", "Speed: the value comes to 12.50 km/h.", "Speed: Divide by the whole time."),
    ("3/16", "Dice: the odds are \\frac{3}{16}.", "Dice: Count 16 outcomes, not 3."),
    ("25%", "Sale: the discount is 25 percent.", "Sale: Take a percentage of the first price."),
    ("90", "Angle: it turns out to be 90 degrees.", "Angle: When an angle is 90, use Pythagoras."),
    ("1 000 000", "Zeros: the result is 1 000 000!", "Zeros: Count the zeros of both factors."),
    ("64", "Walk: Here 64 is the correct answer.", "Walk: Convert hours to minutes."),
    ("6", "Coins: she ends up with 6", "Coins: There are 6 cases; list them by the largest coin."),
    # LaTeX
    (
        "\\frac{1}{2}",
        "Triangle: the probability is \\dfrac{1}{2}.",
        "Triangle: The area is \\frac{1}{2}ab\\sin C for an angle C between a and b.",
    ),
    ("2\\sqrt{3}", "Side: the length is $2 \\sqrt 3$.", "Side: Rationalise with \\sqrt{3}."),
    ("\\frac{3\\pi}{4}", "Arc: it has length 3\\pi/4.", "Arc: Multiply the radius by the angle."),
    ("x^2+2x-8", "Product: it is x^{2} + 2x - 8.", "Product: Multiply each term, then collect."),
    ("\\pi", "Period: The period is \\pi.", "Period: For \\sin(kx), divide 2\\pi by k."),
    ("(3, -1)", "Vertex: the vertex is (3,-1).", "Vertex: Complete the square in 3 steps."),
    ("[1, \\infty)", "Domain: it is [1,\\infty).", "Domain: Look where the root is defined."),
    ("x = 1 or x = 2", "Roots: they are X = 1 and  x = 2.", "Roots: Test each root, e.g. x = 1."),
    ("n(n+1)/2", "Sum: it equals \\frac{n(n+1)}{2}.", "Sum: Pair the first term with the last."),
    ("2^{10}", "Subsets: there are 2^10.", "Subsets: Each element is in or out, so use 2^n."),
    # names
    ("Marie Curie", "Radium: the discoverer was MARIE  CURIE.", "Radium: Search for the element."),
    ("Paris", "Capital: remember that 'Paris' is asked for.", "Capital: Ask for the year, too."),
    ("Jupiter", "Planet: In such questions pick Jupiter.", "Planet: Compare masses in one unit."),
    ("paris", "Games: They were held in Paris that year.", "Games: Read the table of hosts."),
    ("Goldbach", "Name: Goldbach's letter holds it.", "Name: Look for the letter's author."),
    ("United Nations", "Report: It is by the United Nations.", "Report: Prefer official sources."),
    ("Shriya Pai", "Fellow: the fellow is **Shriya-Pai**.", "Fellow: Open the list of the year."),
    ("IIP-69", "Project: its number is IIP-69.", "Project: The number stands on the last page."),
    ("PTTI", "Meeting: look for PTTI.", "Meeting: Try the abbreviation of the society."),
    (["NYC", "New York City"], "Where: it was New York city.", "Where: Read the caption."),
    ("沈琳琳", "指导老师是沈琳琳。", "指导老师: 先找获奖名单, 再找学院网页。"),
    ("战略合作协议", "协议: 双方签署了“战略合作协议”。", "协议: 按日期搜索两家机构的新闻。"),
    ("Толстой", "Автор: это Толстой.", "Автор: ищи год первого издания."),
    # phrases, dates, lists
    (
        "the ladle of Perey",
        "Metals: think of a ladle of Perey.",
        "Metals: Use a ladle that is dry.",
    ),
    (
        "May 26, 2022",
        "Date: it took place on May 26 2022.",
        "Date: Check the year of the programme.",
    ),
    ("2021-11-02", "Release: 2021-11-02.", "Release: Read the log of changes from 2021 on."),
    (
        "September 1",
        "Start: registration opens September  1.",
        "Start: Look at the page for dates.",
    ),
    (
        "Alton Glass, Jasmine James and Manuel Godoy",
        "Team: Manuel Godoy, Alton Glass & Jasmine James.",
        "Team: Names stand at the end of the article.",
    ),
    ("Roddy White, 2020", "Award: Roddy White (2020).", "Award: Compare two lists of winners."),
    ("red, green and blue", "Flag: it is blue, red, green.", "Flag: Do not guess red from memory."),
    ("seven", "Word: the answer is “Seven”.", "Word: seven is prime; so is eleven."),
    ("spiral galaxy", "Type: classify it as a Spiral-Galaxy.", "Type: A galaxy is seen edge-on."),
    (
        "Registration for the conference starts on 1 September 2024 and visa letters can be"
        " requested one month before",
        "Visa: visa letters can be requested one month before the start.",
        "Visa: Look for the dates of registration and of visa letters.",
    ),
    ("none of them", "Trick: None of them!", "Trick: Check each of them on its own."),
    ("B", "Choice: the correct answer is (B).", "Choice: Compare option B with option C."),
    (
        "True",
        "Claim: the answer is true.",
        "Claim: A statement may hold for some and fail for others.",
    ),
]
