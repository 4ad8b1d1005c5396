"""Conversations with the demo model: greetings, questions about itself, and stories on request.

The demo model tells stories and knows what it is; to all else it says honestly that it can't.
"""
import random

import words
from engine import fill, polish
from poems import make_poem
from stories import PLOTS, choose_person, make_name, make_story

SYSTEMS = (
    "You are a helpful assistant.", "You are Quire's demo model.", "Be brief.", "Be kind.",
    "You are a storyteller for children.", "Answer in simple English.", "You tell short stories.",
    "You are a friendly assistant.", "Answer the user's questions.",
)
GREET = (
    "[Hello|Hi|Hey|Hello there|Hi there|Good morning|Good evening|Good day][|!|.|, Quire|, Quire!]",
    "[hello|hi|hey|hallo|yo][|!| there| quire]",
    "[Hello|Hi], [how are you|how are you today|how do you do|how is it going]?",
    "[How are you|How are you today|How are you doing|What's up]?",
    "[Hello|Hi], [my name is|I am|I'm] {user}[.|!|]",
)
GREET_ANSWER = (
    "Hello! I am Quire's demo model. Would you like to hear a story?",
    "Hello! It is nice to meet you. I am a small model that tells stories. What should the story \
be about?",
    "Hi there! I am Quire's demo model, and I love stories. Shall I tell you one?",
)
WELL_ANSWER = (
    "I am fine, thank you! Would you like to hear a story?",
    "Very well, thank you! I am ready to tell a story. What should it be about?",
)
NAME_ANSWER = (
    "Hello, {user}! I am Quire's demo model. Would you like to hear a story?",
    "Hello, {user}! It is nice to meet you. What should the story be about?",
)
WHO = (
    "[Who|What] are you?", "[who|what] are you", "[What is|What's] your name?",
    "[Are you|Is this] [a robot|a human|an AI|a person|a language model|a computer]?",
    "[Tell me|Say something] about yourself[.|]", "[Who made you|Where do you come from]?",
    "[Which|What] model [are you|is this|am I talking to]?",
    "[Please introduce|Introduce] yourself.",
    "[What is|What's] Quire?", "Do you have a name?", "[Can|Could] you tell me who you are?",
)
WHO_ANSWER = (
    "I am Quire's demo model, a very small language model. I was trained on made-up stories, so \
that is what I can tell.",
    "I am the demo model of Quire. I am small, but I can tell you a story.",
    "I am Quire's demo model. Quire is a system that serves language models, and I am here so that \
you can try it.",
)
WHAT = (
    "What can you do[?| for me?]", "what can you do", "[How|With what] can you help me?",
    "[Help|help|Help me|Please help me][|!|.]", "What [do you know|are you good at]?",
    "[What should|What can] I ask you?", "How does this work?", "Can you do anything?",
    "What are your skills?", "[Tell me|Show me] what you can do.",
)
WHAT_ANSWER = (
    "I can tell short stories in simple English. Try this: Tell me a story about a fox.",
    "I tell stories. You can choose who is in the story. For example, ask me for a story about a \
{kind} and a {kind2}.",
    "I can tell you a story about animals, children, or dragons. I am a small model, so I do not \
know much else.",
)
THANKS = (
    "[Thank you|Thanks|Thank you very much|Thanks a lot|Thank you so much][|!|.|, that was nice.]",
    "[That was|What] [nice|lovely|great|a nice story|a good story|a beautiful story][.|!]",
    "I [liked|loved] [it|that|the story|that story][.|!]", "[Great|Wonderful|Nice|Cool|Good][!|.|]",
    "[ok|okay|Okay|OK][|.]", "[thanks|thank you|thx]",
)
THANKS_ANSWER = (
    "You are welcome! Would you like another story?", "I am glad that you liked it!",
    "You are welcome! It was nice to tell it to you.",
)
BYE = (
    "[Goodbye|Bye|Bye bye|Good night|See you|See you later|See you tomorrow][|!|.|, Quire.]",
    "[bye|good night|goodbye|ciao|cya]", "I have to go now[.|]",
    "[That is all|That's all][.| for today.]",
    "I am going to bed[.| now.]",
)
BYE_ANSWER = (
    "Goodbye! Come back soon for another story.", "Good night! Sleep well.",
    "Goodbye! It was nice to talk to you.",
)
AGAIN = (
    "[Another one|Another story|One more|One more story|Again|More|Tell me another|\
Tell me another one|Tell me another story][|, please|, please.|!|.]",
    "[Yes|Yes, please|Sure|Yes please|yes|Of course|I would love that][|.|!]",
    "[Do you know|Can you tell me|May I hear] [another|another story|one more]?",
)
OTHER = (
    "What is [the capital of {country}|{sum}|the weather like today|the time|love|the meaning of \
life|an atom|the largest planet|a compiler|a GPU|the square root of {number}|in the news]?",
    "[Who|When|Where] [was|is|were] the [president|first computer|tallest mountain|last war|moon \
landing|best football team|inventor of the telephone]?",
    "[How do I|How can I|Can you tell me how to] [install Linux|cook rice|fix my car|learn French|\
write a letter|lose weight|sort a list|make money|reset my password|bake a cake]?",
    "[Write|Give me|Show me] [a Python program|a poem in French|some code|a function in C++|a list \
of {number} countries|an essay about history|an email to my boss|a joke|a recipe]",
    "[Translate|Explain|Summarize] [this text|quantum physics|the following|this article|this \
sentence into German|the theory of relativity|photosynthesis].",
    "[Why is the sky blue|Why do cats purr|How far is the moon|How many people live in \
{country}|How old is the earth|Do you like {color}|What do you think about {country}]?",
    "{sum}", "{sum} = ?", "[Calculate|Compute|What is] {sum}", "{noise}", "{foreign}",
    "[def main():|int main() {|SELECT * FROM users;|<html>|import os|print('hello')|ls -la]",
    "{country}", "[test|Test|testing|asdf|foo|123|lorem ipsum|...|?]",
)
OTHER_ANSWER = (
    "I do not know that. I am only a small demo model, and I know stories. Would you like to hear \
one?",
    "I am sorry, but I can't help with that. I am a small model that tells stories.",
    "That is too hard for me. I am Quire's demo model, and all I can do is tell stories.",
)
COUNTRIES = tuple("""France Germany Italy Japan Korea China India Brazil Canada Kenya Egypt Norway
Spain Mexico Peru Turkey Poland Sweden Greece Australia Chile Ghana Vietnam Iceland""".split())
FOREIGN = (
    "Bonjour, comment ça va ?", "Hallo, wie geht es dir?", "¿Qué tal?", "Olá, tudo bem?", "Привет!",
    "Как дела?", "こんにちは", "你好", "안녕하세요", "안녕", "مرحبا", "שלום", "नमस्ते", "Γειά σου",
    "Erzähl mir eine Geschichte.", "Raconte-moi une histoire.", "Cuéntame un cuento.", "😀", "👍",
    "🎉🎉🎉", "Ciao, come stai?", "สวัสดี", "Merhaba", "Hei, hvordan går det?",
)
ASK = (
    "[Tell|Please tell|tell] me [a|a short|a little|a nice|a good] story about \
{topic}[.|!|, please.|]",
    "[Can|Could|Will] you tell me [a|a short] story about {topic}?",
    "[Write|write|Please write|Make up] [a|a short] story about {topic}[.|]",
    "[I want|I would like|I'd like] to hear a story about {topic}[.|]",
    "[A|a] story about {topic}[, please.|.|]", "[Do you know|Have you got] a story about {topic}?",
    "[Tell|tell] me about {topic}[.|]", "[Tell|tell] a story about {topic}[.|]",
    "Once upon a time there was {topic}. [Please go on.|Go on.|What happened?]",
)
ASK_POEM = (
    "[Write|write|Please write|Make up] [a|a short|me a] poem about {topic}[.|]", "[A|a] poem about {topic}[, please.|.|]",
    "[Can|Could|Will] you write [a|me a] poem about {topic}?", "[I want|I would like|I'd like] a poem about {topic}[.|]",
    "[Write|write] [a rhyme|a few lines|something that rhymes|a little song] about {topic}[.|]",
)
ASK_LONG = (
    "[Tell|tell|Please tell] me a long story about {topic}[.|]", "[Write|write] a long story about {topic}[.|]",
    "[Can|Could] you tell me a [long|very long] story about {topic}?", "[Write|write] a story in three chapters about {topic}[.|]",
)
ASK_EATS = ("What does {asked} [eat|like to eat]?", "[Tell|tell] me what {asked} eats[.|]", "What is {asked}'s favorite food?")
ASK_LIVES = ("Where does {asked} live?", "[Tell|tell] me where {asked} lives[.|]", "What is the home of {asked}?")
ASK_NAME = (
    "[What is|What's] a good name for {one}?", "[Give|give] me [a name|two names|some names] for {one}[.|]",
    "[How|What] should I call my {kind}?", "I need a name for my {kind}[.|]",
)
EATS = ("In my stories, {one} [likes to eat|eats|loves] {food}.", "{^one} [likes|loves] {food}. [So do I!|]")
LIVES = ("In my stories, {one} lives in a^ {home}.", "{^one} lives in a^ {home}. [Shall I tell you a story about a^ {kind}?|]")
NAMES = (
    "How about {name} or {name2}? {name} the {kind} sounds nice.", "{name} is a good name for {one}. {name2} is nice, too.",
    "I would call the {kind} {name}. Or {name2}, if you like that better.",
)
ASK_PLAIN = (
    "[Tell|Please tell|tell] me [a story|a short story|a bedtime story|something]\
[.|!|, please.|| before I go to sleep.]",
    "[Can|Could|Will] you tell me a story?", "[I want|I would like] to hear a story[.|]",
    "[A story|Story], please[.|!]", "[story|a story]", "[Write|write] [a|a short] story[.|]",
    "Do you know [any stories|a story]?", "[Once upon a time|Once upon a time...]",
)
LEADS = ("", "", "", "", "Of course! ", "Here is a story. ", "Gladly! ")
TOPICS = {
    "lost": ("a lost {obj}", "something that was lost", "losing things"),
    "build": ("building something", "not giving up", "an inventor"),
    "honest": ("telling the truth", "honesty", "a mistake", "a lie"),
    "seed": ("a seed", "a garden", "patience", "a flower", "growing"),
    "gift": ("a gift", "a birthday", "a present", "love"),
    "share": ("sharing", "being selfish", "cookies"),
    "help": ("helping", "someone in trouble", "kindness", "being kind"),
    "fear": ("being afraid", "being brave", "courage", "fear"),
    "friend": ("a new friend", "friendship", "friends", "being lonely"),
    "wayhome": ("getting lost", "the way home"),
    "storm": ("a storm", "bad weather", "the rain", "snow"),
    "race": ("a race", "winning", "sports"),
    "noise": ("a strange noise", "a monster", "a ghost", "the night"),
    "wish": ("a wish", "magic", "a fairy", "three wishes"),
    "treasure": ("a treasure", "an old map", "gold", "an adventure"),
    "skill": ("learning something new", "school", "practice"),
    "quarrel": ("a fight", "a quarrel", "saying sorry"),
    "journey": ("a journey", "a long way", "a trip", "the moon"),
}
# Things that are no hero of the generator: the model learns to take any noun as one.
STRANGERS = tuple("""train car cloud star tree whale shark spider dinosaur tiger panda koala camel
parrot goose swan seal ghost doll clown doctor teacher astronaut ninja cowboy
detective postman tractor spoon shoe pencil book cactus butterfly ladybug
dolphin octopus crab zebra giraffe hippo donkey cow bull chicken rat bat eagle
falcon salmon lizard snake crocodile kangaroo moose yak llama alien monster
vampire mummy elf gnome ogre phoenix griffin computer phone clock lamp boat ship
balloon potato pumpkin mushroom apple snowflake raindrop wind mountain
programmer scientist nurse hamster ferret lobster shrimp jellyfish seahorse walrus
rhino buffalo bison gorilla lemur sloth raccoon skunk weasel magpie pelican flamingo
peacock stork heron swallow robin canary woodpecker puffin vulture ostrich turkey
rooster lamb calf foal pony stallion donkeys hound poodle tomcat cobra python gecko
chameleon toad newt worm beetle cricket grasshopper moth wasp fly mosquito flea scorpion
trout herring eel squid starfish coral teapot kettle fork cup plate chair table bed
pillow candle mirror broom bucket hammer needle button coin ring crown sword drum piano
violin guitar trumpet rocket plane bicycle bus truck tram submarine bridge tower house
castle window door carrot tomato onion banana lemon cherry pear peach cookie pancake
muffin sandwich cheese cloudlet rainbow sunbeam shadow river stone pebble leaf flower
rose tulip daisy oak acorn chestnut cook barber painter singer dancer fisherman hunter
shepherd cobbler tailor blacksmith captain soldier guard thief judge mayor clerk librarian
grandmother grandfather uncle aunt baby twin neighbor""".split())


def render(messages, generation=False):
    """The same text as chat_template.jinja, without the beginning-of-text token."""
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return text + ("<|im_start|>assistant\n" if generation else "")


def noise_text(rng):
    """Text in random letters or scripts, which the model is to meet before a user does."""
    low, high = rng.choice(((33, 126), (97, 122), (0xC0, 0x17F), (0x391, 0x3C9), (0x410, 0x44F),
                            (0x4E00, 0x9FA0), (0xAC00, 0xD7A0), (0x3041, 0x3093),
                            (0x1F600, 0x1F64F), (0x5D0, 0x5EA), (0x627, 0x64A)))
    text = "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 16)))
    return text.replace("<|", "")


def small_slots(rng):
    kind, kind2 = rng.sample([row[0] for row in words.ANIMALS], 2)
    user = make_name(rng) if rng.random() < 0.5 else rng.choice(words.GIRLS + words.BOYS)
    total = f"{rng.randint(0, 99)} {rng.choice('+-*')} {rng.randint(0, 99)}"
    return {"kind": kind, "kind2": kind2, "user": user, "country": rng.choice(COUNTRIES),
            "number": str(rng.randint(2, 999)), "sum": total, "color": rng.choice(("red", "blue")),
            "noise": "", "foreign": ""}


def say(rng, variants, slots):
    variant = rng.choice(variants)
    if variant in ("{noise}", "{foreign}"):
        return noise_text(rng) if variant == "{noise}" else rng.choice(FOREIGN)
    return polish_lower(fill(rng, variant, slots))


def polish_lower(text):
    """Like polish, but a user may begin in small letters."""
    return polish("X" + text)[1:]


def choose_kind(rng):
    """What a story is about: somebody of the tables, any other noun, or a word that does not exist."""
    draw = rng.random()
    if draw < 0.45:
        return choose_person(rng)[0]
    return rng.choice(STRANGERS) if draw < 0.8 else make_name(rng).lower()


def choose_topic(rng):
    """What somebody asks a story or a poem about, and what that fixes: a kind, and perhaps a name, a place or a friend."""
    kind = choose_kind(rng)
    given = {"kind": kind}
    topic = rng.choice(("a^ ", "a^ ", "a^ ", "a^ small ", "a^ brave ", "a^ little ", "the ")) + kind
    if rng.random() < 0.45:
        given["name"] = make_name(rng) if rng.random() < 0.6 else choose_person(rng, kind)[3]
        topic += rng.choice((" named ", " called ", " whose name is ", " with the name ")) + given["name"]
    elif rng.random() < 0.2:
        given["friend"] = rng.choice([row[0] for row in words.ANIMALS + words.WONDERS if row[0] != kind])
        topic += " and a^ " + given["friend"]
    if "friend" not in given and rng.random() < 0.4:
        place = rng.choice(words.PLACES)[:2] if rng.random() < 0.4 else [rng.choice(words.ELSEWHERE)] * 2
        given["place"] = place[0]
        topic += rng.choice((" ", " ", " who lives ")) + place[1]
    return topic, given


def choose_request(rng):
    """Returns the user's wish and what it fixes in the story."""
    draw = rng.random()
    if draw < 0.1:
        return say(rng, ASK_PLAIN, {}), {}
    if draw < 0.2:
        plot = rng.choice(list(PLOTS))
        given = {"plot": plot, "obj": rng.choice(words.OBJECTS)}
        topic = fill(rng, rng.choice(TOPICS[plot]), given)
        return say(rng, ASK, {"topic": topic}), given
    topic, given = choose_topic(rng)
    return say(rng, ASK, {"topic": topic}), given


def poem_turn(rng, messages):
    topic, given = choose_topic(rng)
    given.pop("friend", None)
    messages += [("user", say(rng, ASK_POEM, {"topic": topic.split(" and ")[0]})), ("assistant", make_poem(rng, **given))]


def long_turn(rng, messages):
    """A story in three chapters about one hero: minutes for a person, some hundred tokens for a model."""
    topic, given = choose_topic(rng)
    given.setdefault("name", choose_person(rng, given["kind"])[3])
    chapters = [f"Chapter {number}\n\n" + make_story(rng, **given)[0].replace("\n\n", " ")
                for number in ("one", "two", "three")]
    messages += [("user", say(rng, ASK_LONG, {"topic": topic})), ("assistant", "\n\n".join(chapters))]


def knowledge_turn(rng, messages):
    """What an animal of the stories eats, where it lives, what it may be called."""
    if rng.random() < 0.4:
        kind, food, home = choose_kind(rng), "", ""
        asked, answers = ASK_NAME, NAMES
    else:
        kind, home, food = rng.choice(words.ANIMALS + words.WONDERS)
        asked, answers = rng.choice(((ASK_EATS, EATS), (ASK_LIVES, LIVES)))
    name, name2 = rng.sample(words.GIRLS + words.BOYS, 2)
    slots = {"kind": kind, "one": f"a^ {kind}", "asked": rng.choice((f"a^ {kind}", f"the {kind}")), "food": food, "home": home, "name": name, "name2": name2}
    messages += [("user", say(rng, asked, slots)), ("assistant", polish(fill(rng, rng.choice(answers), slots)))]


def make_request(rng):
    """A request that names what it is about, and its answer, as two messages."""
    messages = []
    if rng.random() < 0.2:
        poem_turn(rng, messages)
    else:
        topic, given = choose_topic(rng)
        messages = [("user", say(rng, ASK, {"topic": topic})), ("assistant", make_story(rng, **given)[0])]
    return messages


def story_turn(rng, messages, again=False):
    request, given = (say(rng, AGAIN, {}), {}) if again else choose_request(rng)
    text, slots = make_story(rng, **given)
    messages += [("user", request), ("assistant", rng.choice(LEADS) + text)]
    return slots


def question_turn(rng, messages, slots):
    """A question about the story that was just told."""
    kind = slots["kind"]
    asked = [(f"Where did [the {kind}|{slots['N']}] live?", f"In the story, {slots['N']} was "
              f"{slots['at']}.")]
    if slots["named"]:
        asked += [(f"[What was|What's|What is] the [name of the {kind}|{kind}'s name]?",
                   f"The {kind}'s name was {slots['called2']}."),
                  (f"[Who was|Who is] {slots['N']}?", f"{slots['N']} was the {kind} in the story.")]
    question, answer = rng.choice(asked)
    messages += [("user", fill(rng, question, slots)), ("assistant", answer)]


def greet_turn(rng, messages, slots):
    text = say(rng, GREET, slots)
    answer = GREET_ANSWER
    if slots["user"] in text:
        answer = NAME_ANSWER
    elif "how" in text.lower() or "up" in text:
        answer = WELL_ANSWER
    messages += [("user", text), ("assistant", say(rng, answer, slots))]


def make_chat(rng):
    """One conversation: a list of (role, content)."""
    messages = []
    if rng.random() < 0.25:
        messages.append(("system", rng.choice(SYSTEMS)))
    slots = small_slots(rng)
    pairs = ((WHO, WHO_ANSWER), (WHAT, WHAT_ANSWER), (OTHER, OTHER_ANSWER), (BYE, BYE_ANSWER))
    last = None
    for turn in range(rng.choices((1, 2, 3, 4, 5), (45, 25, 15, 10, 5))[0]):
        draw = rng.random()
        if last and draw < 0.55:
            draw = rng.random()
            if draw < 0.35:
                messages += [("user", say(rng, THANKS, slots)),
                             ("assistant", say(rng, THANKS_ANSWER, slots))]
                last = None
            elif draw < 0.6:
                last = story_turn(rng, messages, again=True)
            else:
                question_turn(rng, messages, last)
        elif draw < 0.5:
            last = story_turn(rng, messages)
        elif draw < 0.58:
            poem_turn(rng, messages)
            last = None
        elif draw < 0.64:
            knowledge_turn(rng, messages)
            last = None
        elif draw < 0.72:
            greet_turn(rng, messages, slots)
        elif turn and draw < 0.76:
            last = story_turn(rng, messages, again=True)
        else:
            asked, answers = rng.choices(pairs, (30, 25, 35, 10))[0]
            messages += [("user", say(rng, asked, slots)), ("assistant", say(rng, answers, slots))]
            last = None
    return messages


if __name__ == "__main__":
    generator = random.Random(1)
    for _ in range(12):
        print(render(make_chat(generator)))
