"""Plots about things: what is lost, built, broken, grown and given."""

LOST = ([{}], """
{N} had a^ {obj} that {he} loved [very much|more than anything|with all {his} heart]. {^E} had \
given it to {him} [on {his} birthday|last winter|when {he} was very little].
The thing {N} loved most was {his} {obj}. {^E} had [made it for {him}|given it to {him}] [on \
{his} birthday|last summer|long ago].
{N} had a^ {obj}. {He} took it [everywhere|with {him} wherever {he} went], because {E} had [made \
it|given it to {him}].

{T}{N} [looked|reached] for the {obj}, but it was [gone|not there|nowhere to be seen]. "[Oh no| \
Oh dear]! Where is my {obj}?" {he} cried.
{T}{N} came home and saw that the {obj} was [gone|missing]. {His} eyes filled with tears. "[I \
have lost it|It is gone]!" {he} [cried|said sadly].
{T}the {obj} [was not in its place|was missing]. {N} felt [very sad|cold inside|a lump in {his} \
throat].

{He} looked {spot1}, but {he} found only {junk1}. {He} looked {spot2}, but there was only {junk2}.
{He} searched [everywhere|high and low]. {^spot1} there was {junk1}. {^spot2} there was {junk2}. \
But there was no {obj}.
First {he} looked {spot1}. Then {he} looked {spot2}. All {he} found was {junk1}.

[Just then|Soon|After a while], {he} met {fintro}. "Have you seen my {obj}?" asked {N}. "No," \
said {F}, "but I [will help you look|can help you look for it]."
{^fintro} [came by|was passing by|heard {him} crying]. "[What is wrong|Why are you so sad|What is \
the matter]?" {fhe} asked. "I have lost my {obj}," said {N}. "[Do not cry|Do not worry|Dry your \
tears]," said {F}. "We will look for it together."
{He} went to {fintro}. "[Please help me|Can you help me]," said {N}. "I have lost my {obj}." "[Of \
course|Yes, of course]," said {F}. "[Two pairs of eyes see more than one|Let us look together]."

"When did you last [see|have] it?" asked {F}. {N} [thought hard|thought for a while]. \
"[Yesterday| This morning], when I was playing {spot3}," {he} said.
"Where were you [yesterday|this morning]?" asked {F}. "I was playing {spot3}," said {N}. "Then \
let us go there," said {F}.

They [ran|hurried|went] there [together|at once|as fast as they could]. And there, {spot3}, lay \
the {obj}! [A little dust was on it, but it was not broken.|It was a little wet, but it was \
safe.|The wind had carried it there.]
So they looked {spot3}. [Something was shining there.|Something was moving there.|At first they \
saw nothing.] [Then {F} pulled the leaves away|Then {N} bent down], and there was the {obj}!
{^spot3} they saw a little bird. It was sitting on the {obj} [as if it were an egg|to keep its \
feet warm]! "[I am sorry|Excuse me]," said the little bird. "I did not know it was yours."

"[Thank you|Thank you so much], {F}!" said {N}, and [gave {fhim} a big hug|{he} danced with joy]. \
"[I would never have found it without you|You are a true friend]."
{N} was so happy that {he} [jumped up and down|laughed out loud|hugged {F}]. "Thank you for \
helping me," {he} said. "[That is what friends are for|You are welcome]," said {F}.

[From then on|After that], {N} [took better care of|always looked after] {his} {obj}.
{N} [learned|knew now] that [a friend is the best help of all|it is easier to find things \
together|what is lost can be found again].
{N} put the {obj} in a safe place, and {he} never lost it again.
""")

BUILD = ([
    dict(thing="kite", stuff="paper and string", fail="it fell straight to the ground",
         why="it was too heavy", fix="used thinner sticks", done="rose high into the blue sky"),
    dict(thing="boat", stuff="wood and an old sheet", fail="it filled with water and sank",
         why="there was a hole in the bottom", fix="closed the hole with wax",
         done="floated like a swan"),
    dict(thing="tree house", stuff="boards and nails", fail="the floor broke with a loud crack",
         why="the boards were too thin", fix="took strong oak boards",
         done="stood as firm as a castle"),
    dict(thing="bridge", stuff="logs and stones", fail="the logs rolled away",
         why="nothing held the logs together", fix="tied the logs with a long rope",
         done="did not move at all"),
    dict(thing="swing", stuff="rope and a plank", fail="the rope broke",
         why="the rope was too old", fix="took a new, strong rope", done="flew up to the leaves"),
    dict(thing="sled", stuff="two planks and a rope", fail="it got stuck in the snow",
         why="the planks were too rough", fix="rubbed the planks until they were smooth",
         done="raced down the hill"),
    dict(thing="birdhouse", stuff="a box and a stick", fail="no bird wanted to live in it",
         why="the door was too small", fix="made a bigger door",
         done="was soon full of singing birds"),
    dict(thing="lantern", stuff="paper and wire", fail="the light went out",
         why="the wind blew in", fix="put glass in front of the flame",
         done="shone like a small moon"),
    dict(thing="cart", stuff="a box and four wheels", fail="a wheel came off",
         why="a nail was missing", fix="put in a new nail", done="rolled smoothly down the road"),
    dict(thing="flying machine", stuff="feathers and wood", fail="it went bump on the ground",
         why="the wings were too short", fix="made longer wings",
         done="glided over the grass like a bird"),
], """
{T}{N} had [an idea|a wonderful idea|a great plan]. "I will build a^ {thing}!" {he} said.
{T}{N} wanted to build a^ {thing}. {He} had dreamed of it for [weeks|days|a long time].
{T}{N} saw a picture of a^ {thing} in a book. "I want to make one [too|of my own]," {he} said.

{He} [found|looked for|collected] {stuff} and worked [all morning|all day|until the sun was \
high]. {^fintro} came to watch.
{He} [asked|called] {fintro} to help. They took {stuff} and worked [all morning|all day|for hours].

[At last|Finally|In the end], the {thing} was ready. But when they tried it, {fail}! "[Oh no|Oh \
dear]," said {N}. "[It does not work|All that work for nothing]."
When the {thing} was [finished|done], {N} wanted to try it at once. But {fail}. {N} [sat down and \
sighed|felt like crying|stamped {his} foot].

"[Do not give up|Do not be sad]," said {F}. "[Let us find out why|Let us see what went wrong]." \
They looked at it [closely|carefully] and saw that {why}.
{F} looked at the {thing} [closely|from all sides]. "I think I know what happened," {fhe} said. \
"[Look here|You see], {why}."
They thought about it [for a long time|until lunch]. "It did not work because {why}," said {N} \
[at last|slowly]. "[You are right|Yes, that is it]!" said {F}.

So they {fix} and tried again. This time the {thing} {done}!
They {fix}. It took [a long time|the whole afternoon|two days], but they did not stop. And this \
time, the {thing} {done}!
"[Let us try again|One more time]," said {N}. They {fix}. Then they held their breath. The \
{thing} {done}!

"[Hooray|We did it|It works]!" [cried|shouted] {N}. {N} and {F} [danced with joy|laughed and \
cheered|hugged each other].
{F} clapped {fhis} hands. "[You never gave up|You are a real builder]," {fhe} said. {N} was very \
proud.

{N} had learned that [mistakes can teach us something|you should try again when something goes \
wrong|good work takes time].
[Everyone|All their friends] came to see the {thing}, and everyone wanted a turn.
"[If something does not work, ask why and try again|Trying again is the secret]," {N} told \
[everyone|{his} friends].
""")

HONEST = ([
    dict(item="blue vase", how="was playing with a ball inside", crash="The ball hit the vase, and \
it fell to the floor", part="pieces"),
    dict(item="favorite cup", how="was dancing around the table", crash="{^His} elbow bumped the \
cup, and it fell down", part="pieces"),
    dict(item="window", how="was throwing snowballs", crash="One snowball flew too far and hit \
the glass", part="bits of glass"),
    dict(item="honey jar", how="wanted just one spoon of honey", crash="The jar slipped and broke \
on the floor", part="sticky bits"),
    dict(item="old clock", how="wanted to see how it ticked", crash="A spring jumped out, and the \
clock stopped", part="little wheels"),
    dict(item="flower pot", how="was running very fast", crash="{^He} bumped into the pot, and it \
cracked", part="pieces"),
    dict(item="chair", how="was jumping up and down on it", crash="One leg broke with a loud \
crack", part="splinters"),
], """
{T}{N} {how}. {^E} had told {him} [not to|to be careful], but {N} [forgot|did not listen].
{T}{N} was [alone at home|bored]. {He} {how}, [although|even though] {E} had told {him} not to.

{crash}. Now {E}'s {item} was broken! {N} [looked at the {part}|stared at the {part}] and [felt \
hot and cold|did not know what to do].
[Crash!|Bang!|Oh no!] {crash}. It was {E}'s {item}! {N} [turned pale|began to tremble].

{He} hid the {part} under {his} bed. "[Maybe|Perhaps] nobody will see," {he} thought. But {he} \
could not [eat|play|sleep] [at all|that evening], because {he} felt so bad.
{He} swept up the {part} and hid them {spot1}. All day long {he} [had a bad feeling in {his} \
belly|could think of nothing else].

{^fintro} saw {his} sad face. "[What is wrong|What happened]?" asked {F}. {N} told {fhim} \
everything. "You should tell the truth," said {F}. "[It will make you feel better|It is hard, but \
it is right]."
{He} told {fintro} what had happened. "[Everyone makes mistakes|It was an accident]," said {F}. \
"But you must tell the truth."

So {N} [went to|found] {E}. "[I am sorry|I am so sorry]," {he} said [quietly|in a small voice]. \
"I broke your {item}."
[At last|In the evening], {N} took a deep breath and went to {E}. "It was me," {he} said. "I \
broke your {item}, and I am sorry."

{^E} was quiet for a moment. Then {ehe} [smiled|hugged {him}]. "Thank you for telling me the \
truth," {ehe} said. "[That is more important than any {item}|I am not angry]."
"I am sad about my {item}," said {E}, "but I am [proud|glad] that you told me the truth. [That \
was brave|Let us mend it together]."

Together they [fixed|mended] it with [glue|care], and [it looked almost like new|only a thin line \
was left]. {N} felt as light as a feather.
{N} felt much better. That day {he} learned that [the truth is always best|it is brave to tell \
the truth].
After that, {N} always told the truth, even when it was hard.
""")

SEED = ([
    dict(seed="a small brown seed", grow="a tall sunflower", use="It smiled down at everyone"),
    dict(seed="a round white seed", grow="a big pumpkin", use="There was enough soup for \
everyone"),
    dict(seed="a tiny black seed", grow="a red poppy", use="It glowed in the morning sun"),
    dict(seed="an acorn", grow="a little oak tree", use="One day it would be as tall as the \
house"),
    dict(seed="an apple seed", grow="a small apple tree", use="The first apple was as sweet as \
honey"),
    dict(seed="a green bean", grow="a long bean plant", use="It climbed all the way up to the \
roof"),
    dict(seed="a strange silver seed", grow="a flower that shone in the dark", use="All the \
moths came to dance around it"),
], """
{T}{N} found {seed} {spot1}. "[What could it be|What will it become]?" {he} [asked|wondered].
{T}{E} gave {N} {seed}. "[Plant it and be patient|Take good care of it]," {ehe} said.

{He} [made|dug] a hole in the earth, put the seed in, and gave it [some|a little] water. Then \
{he} [sat down to wait|waited and waited].
{N} planted it {spot2}. {He} watered it and [sang to it|said good night to it] every evening.

But nothing happened. [The next day|The day after], nothing happened. "[It does not grow|Why does \
it not grow]!" {N} [said|complained].
[One day passed, then two, then three|A whole week went by]. There was [nothing to see|only brown \
earth]. {N} was [sad|disappointed].

"I will dig it up and look," {he} said. But {fintro} stopped {him}. "[Wait|No, wait]," said {F}. \
"[Good things need time|A seed works in secret, under the earth]."
{^fintro} laughed. "You must be patient," said {F}. "[You cannot see it, but it is growing|Even \
the tallest tree was once a seed]."

So {N} waited. {He} gave it water when the sun was hot, and {he} pulled out the weeds. [Then|At \
last], one morning, a [tiny green leaf|little green tip] came out of the ground!
Rain came, and sun came. And one morning, {N} saw [something green|a little green leaf]! "[It is \
growing|Look, look]!" {he} shouted.

It grew and grew. By the end of the summer, it was {grow}. {use}.
Week after week it grew taller. It became {grow}! {use}.

"[You were right|Thank you]," {N} said to {F}. "[I only had to wait|It was worth the wait]."
{N} had learned to be patient. [Every spring after that, {he} planted a new seed.|Good things \
take time, and now {he} knew it.]
""")

GIFT = ([
    dict(day="birthday", made="a picture of the two of them", stuff="paper and colors"),
    dict(day="birthday", made="a necklace of shells", stuff="shells and string"),
    dict(day="birthday", made="a crown of flowers", stuff="yellow flowers and grass"),
    dict(day="birthday", made="a little song", stuff="words and a simple tune"),
    dict(day="birthday", made="a big apple pie", stuff="apples, flour, and butter"),
    dict(day="birthday", made="a bookmark of red leaves", stuff="leaves and glue"),
    dict(day="birthday", made="a small wooden bird", stuff="a piece of soft wood"),
    dict(day="birthday", made="a cozy pillow", stuff="old cloth and feathers"),
], """
{T}{N} remembered that [tomorrow was|it was almost] {E}'s {day}. "I need a gift," {he} said. But \
{he} had no money.
{T}everyone {at} was busy. It was {E}'s {day} [the next day|tomorrow], and {N} [still had no \
gift|had nothing to give].

{He} went to the [market|shop] and looked at all the [beautiful|lovely] things. [Everything cost \
too much|Nothing was right]. {N} [walked home slowly|hung {his} head].
{He} looked at {his} things, but {he} found only {junk1} and {junk2}. "[That is no gift|That will \
not do]," {he} sighed.

On the way {he} met {fintro}. "[A gift does not have to be bought|The best gifts come from the \
heart]," said {F}. "[Why not make something|You could make something]?"
"[What should I do|What can I give]?" {he} asked {fintro}. {F} [smiled|thought about it]. "[Make \
something yourself|Give something that only you can give]," {fhe} said.

{N} liked that idea. {He} took {stuff}, and {he} worked [all evening|until it was dark]. [When \
{he} was finished|At last], it was {made}.
So {N} [sat down|set to work]. With {stuff}, {he} made {made}. It was not perfect, but it was \
made with love.

The next day, {N} gave it to {E}. {^ehis} eyes [grew wide|shone]. "[You made this for me|Did you \
make this yourself]?" {ehe} asked. {N} nodded.
[In the morning|The next morning], {N} [ran|went] to {E} with {his} gift. "[Happy birthday|This \
is for you]!" {he} said.

"[This is the best gift I have ever had|I will keep it forever]," said {E}, and [hugged {him} \
tightly|gave {him} a kiss].
{^E} had tears of joy in {ehis} eyes. "It is wonderful," {ehe} said. "[Thank you, {N}|I will \
always remember this]."

{N} [smiled from ear to ear|was as happy as could be]. {He} had learned that [a gift from the \
heart is the best of all|love is worth more than money].
Then they all ate {treat} and [sang|danced] until [the moon came up|it was late].
""")

SHARE = ([{}], """
{T}{N} found a [big|large] basket of {treat} {spot1}. "[All for me|These are mine]!" {he} said.
{T}{E} gave {N} a [whole bag|big basket] of {treat}. "[There is enough to share|Share them with \
your friends]," {ehe} said.

{^fintro} came by. "[May I have some|Could I have one]?" asked {F}. "No," said {N}. "[They are \
all mine|I want them all]." {F} went away sadly.
Soon {fintro} came along. "[Those look good|How good they smell]!" said {F}. "May I try one?" But \
{N} [shook {his} head|turned away]. "No, they are mine," {he} said.

{N} sat down {spot2} and ate and ate. But [nobody was there to talk to|it was very quiet]. The \
{treat} did not taste so good [all alone|anymore].
{N} ate {treat} until {his} belly hurt. {He} was full, but {he} was not happy. {He} felt [lonely| \
all alone].

Then {N} thought of {F}. "I was not kind," {he} said [to {himself}|softly]. "[I will make it \
right|I must say sorry]."
{N} heard the others laughing [far away|in the distance]. "[What good are {treat} without \
friends|I should have shared]," {he} thought.

{He} [took|picked up] the basket and [ran|went] to {F}. "I am sorry," said {N}. "[I was \
selfish|That was not nice of me]. Please, have some."
{He} [ran|walked] all the way to {F}. "Please forgive me," {he} said. "I want to share with you."

{F} smiled. "[Thank you|I forgive you]," {fhe} said. They sat down together, and [now the {treat} \
tasted wonderful|every bite tasted better than before].
"[Of course|That is all right]," said {F}. They shared the {treat} and [laughed|told each other \
stories].

"[Things taste better when you share them|Sharing is better than having]," said {N}.
{N} never forgot that day. After that, {he} always shared.
{N} had learned that [sharing makes everything sweeter|joy grows when you share it].
""")
