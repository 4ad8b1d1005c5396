"""Plots about others and oneself: help, courage, friendship, weather, wonder."""

WATER = ("the river", "the sea", "the lake", "the island")
HILLS = ("the mountain", "the valley")

HELP = ([
    dict(trouble="stuck in the deep mud", why="{fhe} had slipped on the wet path",
         tool="a long branch", act="held out the branch and pulled with all {his} strength",
         done="With a loud pop, {F} came free"),
    dict(trouble="sitting on a high rock", why="{fhe} had climbed up and could not get down",
         tool="a strong rope", act="threw up the rope and held it tight",
         done="Step by step, {F} came down"),
    dict(trouble="caught in a bush full of thorns", why="{fhe} had chased a butterfly",
         tool="a stick", act="pushed the thorns away, one by one",
         done="At last {F} could crawl out"),
    dict(trouble="standing beside a broken cart", why="the wheel had hit a stone",
         tool="a hammer and a nail", act="lifted the cart and fixed the wheel",
         done="Soon the cart could roll again"),
    dict(trouble="looking at a boat that was drifting away", why="{fhe} had not tied it well",
         tool="a hook on a long line", act="threw the line and pulled the boat back",
         done="The boat came back to the shore"),
    dict(trouble="shivering in the cold", why="{fhe} had lost {fhis} coat in the wind",
         tool="a warm blanket", act="put the blanket around {fhim} and made hot tea",
         done="Soon {F} was warm again"),
    dict(trouble="trapped in a deep hole", why="{fhe} had not seen it under the leaves",
         tool="a ladder", act="let the ladder down and held it still",
         done="{^F} climbed up into the light"),
    dict(trouble="trying to carry a heavy basket", why="there were too many apples in it",
         tool="a little wagon", act="put the basket on the wagon and pulled it up the hill",
         done="They were home before dark"),
    dict(trouble="crying on a tree stump", why="{fhe} had lost {fhis} way",
         tool="a map", act="looked at the map and took {F} by the hand",
         done="They found the way home"),
], """
{T}{N} [suddenly heard|heard] a [voice|cry|small voice]. "Help! Help!" it [called|cried].
{T}{N} heard someone [calling|crying] for help. {He} [stopped and listened|ran to see who it was].
{T}{N} was on the way to [the market|{his} aunt] when {he} heard a strange sound.

It was {fintro}, who was {trouble}. "[What happened|How did this happen]?" asked {N}. {F} [told \
{him}|said] that {why}.
There {he} saw {fintro}. {^fhe} was {trouble}, because {why}.

"[Do not worry|Do not be afraid], I will help you," said {N}. [But how?|First {he} tried with \
{his} hands, but it did not work.|{He} looked around.]
{N} [pulled and pushed|tried and tried], but it was [too hard|no use]. "I need {tool}," {he} \
thought.
[Other people had walked past|Two crows laughed and flew away], but {N} [stayed|did not]. "I will \
not leave you alone," {he} said.

Then {N} had an idea. {He} [found|went to get] {tool}. {He} {act}. {done}!
{He} [ran home and came back with|looked around and found] {tool}. Then {he} {act}. {done}!

"[Thank you|Oh, thank you]!" said {F}. "[You are very kind|You saved me]. How can I thank you?" \
"[You do not have to|Just be my friend]," said {N}.
{F} [was so happy that {fhe} cried|thanked {him} again and again]. "[One day I will help you, \
too|I will never forget this]," {fhe} said.

[Some days later|The next week|One rainy day], {N} [was in trouble {himself}|fell into the water| \
lost {his} way]. And who came to help? It was {F}!

{N} learned that [helping others makes you happy|a kind act always comes back|no one is too small \
to help].
They [shared some {treat}|had tea together] and talked until the [sun went down|evening].
"[Today I helped you, tomorrow you help me|That is how friends are made]," said {N} and laughed.
""")

FEAR = ([
    dict(fear="the dark", sign="When the sun went down, {he} hid under the blanket",
         idea="The dark is only a blanket for the day. Look, it has stars in it",
         act="looked up and saw a thousand stars", result="the dark was not so bad at all"),
    dict(fear="thunder", sign="When the sky rumbled, {he} put {his} hands over {his} ears",
         idea="Count after the lightning. The thunder is far away",
         act="counted to ten and heard only a soft rumble",
         result="it sounded like a giant playing a drum"),
    dict(fear="deep water", sign="When the others swam, {he} sat alone on the grass",
         idea="Hold my hand, and put in one foot first",
         act="put one foot in the water, and then the other",
         result="the water was cool and held {him} up"),
    dict(fear="high places", sign="When the others climbed, {he} stayed on the ground",
         idea="Do not look down. Look at the next step",
         act="climbed one step, and then one more", result="from the top, {he} could see the sea"),
    dict(fear="strangers", sign="When someone said hello, {he} ran away",
         idea="Every friend was once a stranger. Just say hello",
         act="said a very small hello", result="the stranger smiled and said hello back"),
    dict(fear="singing in front of others", sign="When it was {his} turn, no sound came out",
         idea="Close your eyes and sing for me alone",
         act="closed {his} eyes and began to sing", result="everyone listened and clapped"),
    dict(fear="the old bridge", sign="When {he} had to cross it, {his} knees shook",
         idea="It is stronger than it looks. I will walk in front of you",
         act="took one step, and another, and another", result="soon {he} was on the other side"),
    dict(fear="the first day of school", sign="When {he} thought about it, {his} belly hurt",
         idea="Everyone there is new, just like you", act="walked through the door",
         result="the others smiled, and there was a seat by the window"),
], """
{N} was [not afraid of much|brave in many ways], but there was one thing: {he} was afraid of \
{fear}. {sign}.
There was one thing that {N} [did not like|could not stand]: {fear}. {sign}.
{N} was afraid of {fear}. {sign}. [Nobody knew about it.|{He} never told anyone.]

{T}{N} [met|went to see] {fintro}. "[I have a secret|Can I tell you something]," said {N}. "I am \
afraid of {fear}." {F} did not laugh.
{T}{^fintro} asked, "[Why are you sad|Why do you never come with us]?" {N} looked at the ground. \
"Because I am afraid of {fear}," {he} [whispered|said].

"[Everyone is afraid of something|I was afraid, too]," said {F}. "[Let me help you|I will stay \
with you]."
"[That is all right|There is no shame in that]," said {F}. "[Being brave does not mean that you \
are not afraid|To be brave is to try, even when you are afraid]."

"{idea}," said {F}. {N} [took a deep breath|held {fhis} hand]. {He} {act}.
Then {F} said, "{idea}." So {N} tried. {His} heart beat fast, but {he} {act}.

{^result}! "[I did it|I can do it]!" [cried|said] {N}. {F} [cheered|was proud of {him}].
And [what a surprise|guess what]: {result}. {N} [laughed|could not believe it].

After that, {N} was [not so|a little less|no longer] afraid of {fear}.
"[I am still a little afraid|My knees still shake]," said {N}, "but I am also brave." And {F} \
[nodded|agreed].
{N} had learned that [you can be afraid and brave at the same time|a friend makes you brave].
""")

FRIEND = ([{}], """
{N} was [often|always] alone. {He} [talked to {his} toys|played alone|watched the others from far \
away], and {he} wished for a friend.
{N} had [just moved|come] to a new place. {He} did not know anyone {at}.
{N} had everything {he} [wanted|needed], but {he} did not have a friend.

{T}{he} saw {fintro} {spot1}. {^fhe} was [all alone, too|reading a book|building a tower of \
stones| looking at the clouds].
{T}there was a knock at the door. It was {fintro}. "[I am new here|I live next door]," {fhe} said.
{T}a ball rolled up to {his} feet. "[That is mine|Can I have it back]," said a voice. It was \
{fintro}.

{N} wanted to say hello, but {he} was [too shy|shy]. What if {F} did not like {him}? [At \
last|Then], {he} took one step. "Hello," {he} said. "I am {N}."
"[Hello|Good morning]," said {N} [softly|in a small voice]. "What are you doing?"

"[Hello|Hi]," said {F}. "[Would you like|Do you want] to play {game}?" "[Yes, please|I would love \
to]!" said {N}.
{F} [smiled|looked up]. "[I was hoping that someone would come|I do not know anyone here]," {fhe} \
said. "[Do you want to play|Will you play with me]?"

They played {game} all [day|afternoon]. {N} was good at [running|hiding|jokes], and {F} was good \
at [jumping|finding things|singing].
They were very different. {N} liked {food}, and {F} liked {treat}. {N} was [loud|quick], and {F} \
was [quiet|slow]. But they laughed at the same [things|jokes].

?0.5
Then they [had a little fight|both wanted to be first]. "You go first," said {N}. "No, you go \
first," said {F}. And they both laughed.
When it began to rain, they sat {spot2} and [told each other stories|shared {treat}].

"Will you come back tomorrow?" asked {N}. "[Of course|Yes, I will]," said {F}. "[We are friends \
now|That is what friends do]."
When it was time to go home, {F} gave {N} a^ {obj}. "[So that you think of me|For my new \
friend]," {fhe} said.

{N} was not lonely anymore. [One small hello had changed everything.|{He} had found a true friend.]
[All it took|All {he} had needed] was one small word: hello.
""")

WAYHOME = ([
    dict(lure="a blue butterfly"), dict(lure="a golden leaf in the wind"),
    dict(lure="the smell of fresh cakes"), dict(lure="a white feather"),
    dict(lure="a strange little light"), dict(lure="a row of tiny footprints"),
    dict(lure="the sound of a flute"), dict(lure="a red balloon"),
], """
{T}{N} saw {lure}. "[How beautiful!|What is that?]" {he} [said|thought], and {he} followed it, \
farther and farther away from home.
{T}{N} followed {lure}. {He} did not look left, and {he} did not look right. {^E} had told {him} \
not to go too far, but {he} forgot.

When {he} looked around, everything was [strange|new]. {He} did not know the way back. "I am \
lost!" {he} [said|cried].
Suddenly it was gone. It was getting dark, and {N} did not know where {he} was. [The shadows grew \
long.|An owl called.]

{He} walked this way and that way, but {he} only [came to the same place again|went in a circle]. \
Then {he} sat down {spot1} and [began to cry|felt very small].
"Hello?" {he} called. [Nobody answered.|Only the wind answered.] {He} sat down {spot2}, tired and \
hungry.

"[Who is crying there|Why are you crying]?" asked a [friendly|soft|kind] voice. It was {fintro}. \
"[I cannot find the way home|I am lost]," said {N}.
Then {fintro} came [along the path|out of the shadows]. "You look lost," said {F}. "[Where do you \
live|Where is your home]?" "[In a^|It is a^] {home}," said {N}, "[but I do not know where it \
is|far away from here]."

"What did you see on your way?" asked {F}. {N} thought. "First [a big rock|a broken fence], then \
[a stream|a tall tree], and then [a mill|three white stones]," {he} said. "Then we will [look for \
them backward|find them again, one after the other]," said {F}.
"[Listen|Be very quiet]," said {F}. "What do you hear?" {N} heard [the bells of the village|the \
water of the stream|the song of {his} mother]. "We only have to follow that sound," said {F}.

[Step by step|Hand in hand], they walked [through the dark|along the path], until they saw a \
light. "That is my {home}!" cried {N}.
They walked [for a long time|until the moon was high]. And there it was: {N}'s {home}, with a \
light in front.

{^E} [ran out and hugged {him}|was waiting at the door]. "I was so worried," {ehe} said. \
"[Promise me that you will not go so far alone|I am so glad you are back]."
"There you are!" said {E}, and {ehe} [held {him} tight|gave them both hot {food2}]. "Thank you \
for bringing {him} home," {ehe} said to {F}.

{N} promised never to go so far alone again.
From then on, {N} always [looked back to see the way|told someone where {he} was going].
""")

STORM = ([
    dict(weather="storm", sign="Dark clouds came over the hills, and the wind began to howl",
         hurt="the roof of {F}'s home had blown away", mend="put on a new roof"),
    dict(weather="flood", sign="It rained and rained, and the water rose higher and higher",
         hurt="{F}'s home was full of water", mend="carried out the water in buckets"),
    dict(weather="snow", sign="It snowed all day and all night, until the doors were covered",
         hurt="{F} could not get out of {fhis} home", mend="dug a path through the snow"),
    dict(weather="dry summer", sign="There was no rain for weeks, and the well was almost empty",
         hurt="{F} had no water left", mend="carried water from the far spring"),
    dict(weather="wind", sign="A great wind came and shook the trees",
         hurt="a tree had fallen on {F}'s home", mend="sawed the tree and fixed the wall"),
], """
{T}{E} looked at the sky. "[A big {weather} is coming|I do not like this {weather}]," {ehe} said. \
{sign}.
{T}the air was [strange|heavy]. {sign}. {N} [looked out of the window|felt afraid].

{N} was safe at home, but then {he} thought of {fintro}. "[Is {F} all right?|I hope nothing has \
happened to {fhim}.|What if {F} needs help?]" {he} thought.
In the morning, {N} went outside. {^fintro} was sitting {spot1} and [crying|looked very tired].

{He} put on {his} [coat|boots] and went to look. And {he} saw that {hurt}!
"[What happened|What is the matter]?" asked {N}. {F} pointed. {^hurt}. "[What can I do|Now I have \
nothing]," said {F}.

"Come and stay with me," said {N}. "[My {home} is small, but there is room for two|Tomorrow we \
will fix it together]."
"[I will help you|Do not be sad]," said {N}. {He} called [everyone {at}|all {his} friends]. \
"[Many hands make light work|If we all help, it will be done soon]!" {he} said.

They all [came|worked together] and {mend}. [Some sang while they worked.|{^E} brought {treat} \
for everyone.]
The next day, they {mend}. It was hard work, but nobody [stopped|complained].

[At last|Then] the sun came out [again|from behind the clouds], and there was a rainbow in the \
sky. "Thank you, everyone," said {F}.
When it was done, {F} [thanked them all|could not stop smiling]. "[I have the best friends in the \
world|Now it is even better than before]," {fhe} said.

{N} had learned that [even the worst {weather} is not so bad with friends|friends help each other \
in bad times].
No one {at} ever forgot that {weather}, or the day when everyone helped.
""")

RACE = ([
    dict(race="race", prize="a silver cup"), dict(race="great run", prize="a crown of leaves"),
    dict(race="boat race", prize="a golden shell", only=WATER),
    dict(race="swimming race", prize="a blue medal", only=WATER),
    dict(race="sled race", prize="a red medal", only=HILLS),
    dict(race="climbing race", prize="a warm red scarf", only=HILLS),
], """
{T}there was a^ {race} {at}. The winner would get {prize}. "[I want to win|I will be the first]!" \
said {N}.
{T}everyone {at} was talking about the {race}. The prize was {prize}. {N} had [trained|practiced] \
[for weeks|every day].

{^fintro} wanted to win, too. "[I am faster than you|You will see only my back]!" {fhe} said. {N} \
said nothing.
{^fintro} was there, too. "[Good luck|May the best one win]," said {F}. "Good luck to you, too," \
said {N}.

"One, two, three, go!" They [were off|started]. {F} was [in front|very fast], but {N} was close \
behind.
The bell rang, and the {race} began. {N} went as fast as {he} could. Soon only {F} was in front \
of {him}.

Then, [just before the end|near the big rock], {F} slipped and fell. "[Ouch|Oh, my foot]!" {fhe} \
cried. {N} could [win now|see the finish line].
[Suddenly|All at once], {F} gave a cry. {^fhe} had hurt {fhis} foot! The others [passed by|did \
not stop].

{N} [looked at the finish line|thought of the prize], and then {he} looked at {F}. {He} stopped. \
"Come, I will help you," {he} said.
But {N} stopped and turned around. "[Lean on me|Hold on to me]," {he} said. "We will go together."

Together they [came in|crossed the line], the last of all. But everyone [clapped|cheered] louder \
for them than for the winner.
They were the last ones. But [{E}|the judge] stood up and said, "[The first is fast, but the kind \
one is great|There is one more prize today, for the kindest heart]."

"You could have won," said {F}. "[Why did you stop|Why did you help me]?" "[A friend is worth \
more than a prize|Because you needed me]," said {N}.
{F} was sorry that {fhe} had been [so proud|unkind]. "[Next time we will be a team|You are the \
real winner]," {fhe} said.

{N} did not get {prize}, but {he} got a friend. [That is better.|And {he} was happy with that.]
{N} [knew|learned] that being kind is more important than winning.
""")
