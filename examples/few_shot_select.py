"""Sort messages to a shop by what they are about: few examples, then `select` among the topics.

Every prompt begins with the same examples; they are computed once and shared by the whole batch.

    palmette run examples/few_shot_select.py
"""

from __future__ import annotations

import palmette as sgl

TOPICS = ["shipping", "refund", "product", "thanks"]

EXAMPLES = """Each message to the shop is about one topic: shipping, refund, product or thanks.

Message: My parcel was meant to come on Monday and it still has not arrived.
Topic: shipping

Message: Thank you so much, the gift was lovely and everybody smiled.
Topic: thanks

Message: I sent the shoes back two weeks ago. When do I get my money?
Topic: refund

Message: Is this lamp bright enough to read by, and which bulb does it take?
Topic: product

Message: The driver left the box at the wrong house.
Topic: shipping

Message: Does the blue jacket come in a larger size?
Topic: product

Message: You charged me twice; please pay one of them back.
Topic: refund

Message: Great service, I am very happy. Many thanks!
Topic: thanks
"""

MESSAGES = [
    ("Where is my order? The tracking page has not changed for days.", "shipping"),
    ("Please return the money for the broken kettle.", "refund"),
    ("How long is the cable of this charger?", "product"),
    ("Thanks a lot, you were very kind on the phone.", "thanks"),
    ("The courier came when nobody was at home. Can he come again tomorrow?", "shipping"),
    ("I want my money back, the shirt shrank in the first wash.", "refund"),
    ("Can this pan be used on an induction stove?", "product"),
    ("I just wanted to say thank you for the quick help.", "thanks"),
    ("My package is stuck at the depot since Friday.", "shipping"),
    ("You still owe me the deposit for the rented tent.", "refund"),
    ("Is the table made of oak or of pine?", "product"),
    ("Many thanks to the whole team, we love the new sofa.", "thanks"),
    ("Can you ship to Norway, and how many days does it take?", "shipping"),
    ("I cancelled the order. Please pay the amount back to my card.", "refund"),
    ("Does the watch work under water?", "product"),
    ("Wonderful shop, thank you and see you soon!", "thanks"),
    ("The parcel arrived at my neighbour's house instead of mine.", "shipping"),
    ("How do I get a refund for a ticket that I did not use?", "refund"),
    ("Which colours does the backpack come in?", "product"),
    ("Thank you for wrapping it so nicely.", "thanks"),
]


@sgl.function
def classify(s, message):
    s += EXAMPLES
    s += f"\nMessage: {message}\nTopic:"
    s += sgl.select("choice", [f" {topic}" for topic in TOPICS])  # a word's token begins with its space
    s["topic"] = s["choice"].strip()


if __name__ == "__main__":
    states = classify.run_batch([{"message": message} for message, _ in MESSAGES], progress_bar=True)
    for state, (message, topic) in zip(states, MESSAGES, strict=True):
        mark = " " if state["topic"] == topic else "✗"
        print(f"{mark} {state['topic']:9} {message}")
