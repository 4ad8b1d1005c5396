"""The vocabulary of the story generator: who, where, with what.

Every table is a plain tuple so that the generator's choices depend on the seed alone.
"""

GIRLS = tuple("""Mia Lily Anna Rosa Clara Nora Ella Ruby Daisy Ivy Lucy Maya Sara Poppy Hazel Luna
Penny Bella""".split())
BOYS = tuple("""Tom Ben Leo Max Sam Finn Jack Oscar Hugo Omar Noah Theo Felix Milo Otto Toby Jasper
Pip""".split())

# Syllables for made-up names: a model that has met many unknown names learns to copy a name.
NAME_HEADS = tuple("""Bo Da Fi Ka Lo Mi Na Pe Ri Sa Ta Vi Zo Wi Ju Gri Bri Tru Flo Sto Pla El Or Im
Al Be Ru Ze Qui Mo""".split())
NAME_MIDDLES = tuple("""l r n m b d t v s k ll rr nn mb nd lf rt st zz bb pp x""".split())
NAME_TAILS = tuple("""a o y ie in en us el is ette an ix ora ina ando ely ert""".split())

# kind, home, sound or way of speaking, food, people who call it so
ANIMALS = (
    ("fox", "den", "berries"), ("rabbit", "burrow", "carrots"), ("mouse", "hole", "cheese"),
    ("bear", "cave", "honey"), ("squirrel", "hollow tree", "nuts"), ("owl", "old oak", "seeds"),
    ("hedgehog", "nest of leaves", "apples"), ("duck", "house by the pond", "bread"),
    ("frog", "house by the pond", "soup"), ("cat", "basket", "fish"),
    ("dog", "kennel", "biscuits"), ("turtle", "house by the pond", "lettuce"),
    ("badger", "burrow", "mushrooms"), ("deer", "quiet glade", "apples"),
    ("sparrow", "nest", "seeds"), ("goat", "barn", "grass"), ("pig", "barn", "apples"),
    ("hen", "barn", "corn"), ("horse", "stable", "oats"), ("sheep", "barn", "clover"),
    ("beaver", "lodge", "roots"), ("otter", "house by the river", "fish"),
    ("mole", "tunnel", "roots"), ("penguin", "house of snow", "fish"),
    ("elephant", "shady grove", "bananas"), ("lion", "cave", "pies"),
    ("monkey", "tree house", "bananas"), ("wolf", "den", "stew"), ("bee", "hive", "honey"),
    ("ant", "hill", "crumbs"), ("snail", "shell", "lettuce"), ("crow", "nest", "corn"),
    ("kitten", "basket", "milk"), ("puppy", "kennel", "biscuits"),
)
WONDERS = (
    ("dragon", "cave", "toast"), ("robot", "workshop", "oil"), ("giant", "castle", "porridge"),
    ("wizard", "tower", "soup"), ("fairy", "flower", "honey"), ("princess", "castle", "cakes"),
    ("prince", "castle", "cakes"), ("knight", "castle", "pies"), ("pirate", "ship", "fish"),
    ("witch", "cottage", "soup"), ("king", "castle", "pies"), ("queen", "castle", "cakes"),
    ("sailor", "boat", "fish"), ("farmer", "farmhouse", "bread"), ("baker", "bakery", "bread"),
    ("snowman", "garden", "ice cream"), ("troll", "house under the bridge", "stew"),
    ("unicorn", "silver glade", "clover"), ("mermaid", "house of shells", "seaweed soup"),
    ("miller", "mill", "bread"), ("gardener", "cottage", "carrots"),
)
CHILDREN = (
    ("girl", "house", "pancakes"), ("boy", "house", "pancakes"),
    ("girl", "cottage", "bread"), ("boy", "cottage", "bread"),
    ("child", "house", "apples"),
)
FEMALE = {"girl", "princess", "queen", "hen", "witch", "mermaid", "fairy"}
MALE = {"boy", "prince", "king", "knight", "wizard", "snowman"}

ADJECTIVES = tuple("""small little brave shy clever kind young curious gentle cheerful quiet lonely
happy friendly lazy proud sleepy busy tiny merry careful playful patient silly""".split())

# place, "in the ...", three spots in it, two sights of it
PLACES = (
    ("the forest", "in the forest",
     ("under the old oak", "behind the mossy rocks", "beside the little stream",
      "among the tall ferns"),
     ("The tall trees whispered in the wind.", "Sunlight fell through the green leaves.",
      "The ground was soft with moss.", "Birds sang high up in the branches.")),
    ("the meadow", "in the meadow",
     ("in the long grass", "beside the wooden fence", "under the apple tree",
      "among the yellow flowers"),
     ("The flowers nodded in the breeze.", "Butterflies danced over the grass.",
      "The grass was wet with dew.", "Bees hummed from flower to flower.")),
    ("the river", "by the river",
     ("under the stone bridge", "among the reeds", "beside the round stones",
      "behind the willow tree"),
     ("The water sparkled in the sun.", "Little fish jumped in the clear water.",
      "The river sang its soft song.", "A cool wind blew over the water.")),
    ("the village", "in the village",
     ("behind the bakery", "beside the well", "under the church tower", "near the old gate"),
     ("The streets smelled of fresh bread.", "The bells rang in the tower.",
      "Smoke rose from every chimney.", "People waved from their windows.")),
    ("the farm", "on the farm",
     ("behind the barn", "under the hay", "beside the duck pond", "near the garden gate"),
     ("The hens were scratching in the yard.", "The fields were golden and wide.",
      "The hay smelled sweet and warm.", "A rooster crowed on the fence.")),
    ("the garden", "in the garden",
     ("under the rose bush", "behind the shed", "beside the watering can",
      "among the cabbages"),
     ("The roses smelled sweet.", "The tomatoes were red and round.",
      "A robin hopped along the path.", "Snails crept over the wet stones.")),
    ("the sea", "by the sea",
     ("under the old boat", "behind the white dunes", "beside the tide pool",
      "among the shells"),
     ("The waves rolled softly over the sand.", "White gulls cried in the sky.",
      "The air tasted of salt.", "The sand was warm and bright.")),
    ("the mountain", "on the mountain",
     ("behind the tall pine", "under the wide ledge", "beside the cold spring",
      "among the grey rocks"),
     ("The snow on the peak shone like silver.", "The air was clear and cold.",
      "An eagle circled far above.", "Far below, the valley was green.")),
    ("the lake", "by the lake",
     ("under the wooden pier", "among the water lilies", "behind the boat house",
      "beside the tall reeds"),
     ("The lake was as smooth as glass.", "Dragonflies flew over the water.",
      "A little boat rocked on the waves.", "The sky shone in the still water.")),
    ("the town", "in the town",
     ("behind the school", "under the big clock", "beside the fountain",
      "near the toy shop"),
     ("The streets were full of people.", "The shop windows shone brightly.",
      "A man was playing music in the square.", "Pigeons walked around the fountain.")),
    ("the valley", "in the valley",
     ("under the hazel bush", "behind the old mill", "beside the brook",
      "near the stone wall"),
     ("The hills stood all around.", "Mist lay over the fields.",
      "The brook ran over smooth stones.", "Sheep were grazing on the slopes.")),
    ("the castle", "near the castle",
     ("behind the tall tower", "under the drawbridge", "beside the moat",
      "among the royal roses"),
     ("Flags waved on the high towers.", "The old walls were covered with ivy.",
      "Swans swam around the walls.", "A trumpet sounded from the gate.")),
    ("the island", "on the island",
     ("under the palm tree", "behind the big rock", "beside the small harbor",
      "among the shells"),
     ("The blue sea was all around.", "Parrots called from the trees.",
      "The sun was hot on the white sand.", "A gentle wind moved the palm leaves.")),
)

# Where else somebody may ask for: "in the", "on the" and the like go with each. Spots and sights are those of any place.
ELSEWHERE = tuple(x.strip() for x in """in the desert, on the moon, in the jungle, in the snow, at school, in the kitchen,
in a big city, under the sea, in the clouds, at the beach, in the garden, on a farm, in a small town, at the zoo,
in the library, on a ship, in space, in the park, on the roof, in a cave, by the lake, in the swamp, at the market,
in the museum, on a train, at the north pole, in the attic, in the cellar, in the hospital, in Paris, in London, in Rome,
in Africa, in China, in Iceland, on Mars, in the palace, in the tower, on the hill, in the field, by the waterfall,
at the harbor, on the bridge, in the bakery, at the circus, in the old house, in the barn, on the playground""".split(","))
ANY_SPOTS = ("behind a big stone", "under an old blanket", "beside a wooden box", "next to a blue door", "behind a barrel",
             "under a little bench")
ANY_SIGHTS = ("There was so much to see.", "It was very quiet there.", "Everything was in its place.", "The air smelled good.",
              "All others were still asleep.", "A soft light was shining.")

OBJECTS = tuple(x.strip() for x in """red scarf, silver bell, blue kite, little wooden boat,
golden key, shiny stone, yellow hat, music box, paper star, green ball, woolen blanket, tin whistle,
glass marble, old compass, brown teddy bear, striped umbrella, small drum, picture book, lucky coin,
wooden flute, pink ribbon, tiny lantern, straw hat, warm mitten, round mirror""".split(","))
JUNK = tuple(x.strip() for x in """an old shoe, a broken cup, a pile of leaves, a rusty nail,
two feathers, an empty nest, a sleeping beetle, a smooth pebble, some pine cones,
a piece of string, a few acorns""".split(","))
ELDERS = (
    ("{his} mother", "she", "her", "her"), ("{his} father", "he", "his", "him"),
    ("{his} grandmother", "she", "her", "her"), ("{his} grandfather", "he", "his", "him"),
    ("Grandma", "she", "her", "her"), ("Grandpa", "he", "his", "him"),
    ("{his} aunt", "she", "her", "her"), ("{his} uncle", "he", "his", "him"),
    ("{his} big sister", "she", "her", "her"), ("{his} big brother", "he", "his", "him"),
    ("the old owl", "she", "her", "her"), ("the old turtle", "he", "his", "him"),
    ("the wise old woman", "she", "her", "her"), ("the kind old man", "he", "his", "him"),
)
TREATS = tuple(x.strip() for x in """sweet berries, warm cookies, ripe plums, honey cakes,
red apples, fresh nuts, juicy pears, ginger biscuits, round cherries, soft buns, little pies,
strawberries""".split(","))
GAMES = tuple(x.strip() for x in """hide and seek, catch, tag, with a ball, in the leaves,
pirates, knights and dragons, at sailing little boats, at jumping over puddles""".split(","))
