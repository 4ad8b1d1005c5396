"""Plots of wonder: a noise at night, a wish, a map, a new skill, a quarrel, a journey."""

NOISE = ([
    dict(noise="tap, tap, tap", who="was knocking on the window", need="was cold and wanted to \
come in"),
    dict(noise="scratch, scratch, scratch", who="was scratching at the door", need="had smelled \
the soup and was hungry"),
    dict(noise="drip, drip, drip", who="sat under a hole in the roof", need="was wet from head to \
foot"),
    dict(noise="boo, hoo, hoo", who="was crying behind the door", need="could not find {fhis} \
mother"),
    dict(noise="crunch, crunch, crunch", who="was eating a carrot in the kitchen", need="had not \
eaten all day"),
    dict(noise="hum, hum, hum", who="was singing softly to the moon", need="could not sleep \
alone"),
    dict(noise="bump, bump, bump", who="was trying to open the gate", need="had come home too \
late"),
], """
[One night|One dark night|Late one night], {N} could not sleep. There was a noise: {noise}. \
"[What is that|Who is there]?" {he} [whispered|asked].
[One night|In the middle of the night], {N} woke up. {^noise}! It came from [outside|somewhere in \
the dark].

{He} pulled the blanket over {his} head. Maybe it was [a monster|a ghost]! {^noise}! There it was \
again.
{N} was [a little afraid|frightened]. {He} thought of [monsters with big teeth|ghosts]. But {he} \
was also curious.

{He} took a [candle|lantern] and went, step by step, [along the hall|to the door]. The floor \
[creaked|was cold].
"I will go and see," {he} said bravely. {He} [took a light|put on {his} slippers] and went on \
tiptoe.

{He} opened the door, and there was no monster at all. It was {fintro}, who {who}!
{He} held up the light. And what did {he} see? {^fintro} {who}!

"[You gave me a fright|I thought you were a monster]!" said {N}. "I am sorry," said {F}. {^fhe} \
{need}.
"[Please do not be angry|Do not be afraid of me]," said {F}. {^fhe} {need}. {N} [laughed|smiled].

"[Come in|Come with me]," said {N}. {He} gave {F} [warm milk|a blanket|hot soup], and they sat by \
the fire.
{N} brought [a blanket and some {treat}|hot soup and {treat}]. Soon {F} [felt much better|was \
warm and full].

"Most monsters [are only friends that we do not know yet|are very small in the light]," said {N}.
{N} was glad that {he} had looked. In the light, the thing {he} had feared was only a friend.
""")

WISH = ([
    dict(wish="to be as tall as a tree", trouble="{he} did not fit into {his} {home} anymore"),
    dict(wish="to fly like a bird", trouble="{he} could not sit still with {his} friends anymore"),
    dict(wish="that every day was my birthday",
         trouble="nobody had gifts left, and {he} was tired of cake"),
    dict(wish="to have all the {treat} in the world",
         trouble="there was no room left to sit or to sleep"),
    dict(wish="that everything I touch would turn to gold",
         trouble="{his} supper was gold, too, and {he} could not eat it"),
    dict(wish="that it would always be summer",
         trouble="the plants dried up and the snow never came"),
    dict(wish="to be invisible", trouble="nobody could see {him}, and nobody played with {him}"),
], """
{T}{N} found [an old lamp|a strange bottle|a shining shell] {spot1}. {He} [rubbed it|opened it], \
and out came {magic}! "You may have one wish," it said.
{T}{N} [helped|saved] {magic} [that was caught in a net|that was stuck in a tree]. "Thank you," \
it said. "[Now you may make a wish|I will give you one wish]."
[That night|One night], a star fell from the sky. "[Make a wish|Wish for something]," it said, \
"and it will come true."

{N} did not think for long. "I wish {wish}!" {he} said. There was [a flash|a bang|a soft sound], \
and the wish came true.
"I wish {wish}," said {N}. [And so it was.|No sooner said than done.]

At first, it was [wonderful|great fun]. But soon {N} saw that {trouble}.
[For a while|The first day], {N} was very happy. But then {trouble}.

{^fintro} came by and shook {fhis} head. "[Is that what you really wanted|Are you happy now]?" \
asked {F}. "[No|Not at all]," said {N}, and a tear ran down {his} face.
"[What have I done|This is not what I wanted]," said {N} to {fintro}. "[You have to ask to take \
it back|Perhaps you can wish it away]," said {F}.

So {N} [called out|went back] and [asked|begged]. "Please, take my wish back!" And [with another \
flash|in the next moment], everything was as before.
"I want to be as I was," said {N}. "[Are you sure|Really]?" asked the voice. "[Yes|Very sure]," \
said {N}. And it was done.

{N} [hugged|took the hand of] {F}. "[I have all I need|I am happy with what I have]," {he} said.
{N} [had learned|learned] to be careful with wishes. [What we have is often enough.|The best \
things cannot be wished for.]
""")

TREASURE = ([
    dict(found="a mirror. In it {N} saw {himself} and {F}, side by side",
         note="The greatest treasure is a friend"),
    dict(found="a big book full of stories", note="Read me to each other"),
    dict(found="a box of old seeds", note="Plant these, and the whole land will bloom"),
    dict(found="a golden trumpet", note="Blow me, and all your friends will come"),
    dict(found="a chest full of {treat}", note="Share me"),
    dict(found="a bag of silver coins", note="For those who need it most"),
], """
{T}{N} found an old map {spot1}. There was a red cross on it. "[A treasure|This is a treasure \
map]!" {he} [cried|said].
{T}{E} gave {N} an old, yellow map. "[I found it in the attic|It is older than I am]," {ehe} \
said. "I wonder what is hidden there."

{He} showed it to {fintro}. "[Let us go and find it!|Shall we look for it together?]" said {F}. \
They packed {treat} and [a rope|a lantern|a spade].
{^fintro} wanted to come, too. "[Two are better than one|I am good at reading maps]," said {F}.

First they [crossed a stream|climbed over a wall], then they [went through a dark tunnel|climbed \
a steep hill]. "[Are we there yet|How far is it]?" asked {F}. "[Almost|Not far now]," said {N}.
The way was [long|hard]. They [jumped over a ditch|walked through thick bushes] and [slid down a \
hill|crossed a shaky bridge]. When {N} was tired, {F} sang a song, and when {F} was tired, {N} \
told a joke.

?0.5
Then they came to a [gate|door] with a riddle. "[What gets bigger when you share it|What can you \
give and still keep]?" {F} thought hard. "[Joy|Your word|A smile]!" said {N}, and the door opened.
It began to rain, and the map got wet. But {N} [remembered the way|had looked at it carefully].

At last they came to the place with the cross, {spot3}. They dug and dug. [Clonk!|Suddenly there \
was a sound.] There was an old [chest|box].
And there it was, {spot2}: an old chest with a rusty lock. They opened it [slowly|together].

Inside was {found}. And there was a note: "{note}."
"[What is in it|Is it gold]?" asked {F}. It was {found}. On the lid they read, "{note}."

{N} and {F} looked at each other and [laughed|smiled]. "[This is better than gold|What a good \
treasure]," they said.
{N} thought about it. "[It is true|I like that]," {he} said. "[And the way here was the best \
part|We will do just that]."

On the way home they [sang|talked about it all]. It had been a great adventure.
They never told anyone where they had found it. But sometimes they look at the map and smile.
""")

SKILL = ([
    dict(skill="swim", fail="{he} swallowed a lot of water", tip="Kick with your legs and breathe \
slowly", done="swam all the way to the other side"),
    dict(skill="whistle", fail="only air came out", tip="Make your lips round and blow softly",
         done="whistled a whole song"),
    dict(skill="read", fail="the letters danced before {his} eyes", tip="Take one letter at a \
time", done="read a whole page out loud"),
    dict(skill="ride a bicycle", fail="{he} fell into a bush", tip="Look ahead and not at your \
feet", done="rode all the way around the square"),
    dict(skill="skate on the ice", fail="{he} landed on {his} bottom", tip="Bend your knees a \
little", done="glided over the ice in a big circle"),
    dict(skill="bake bread", fail="the bread was as hard as a stone", tip="Give the dough time to \
rest", done="took a soft, golden loaf out of the oven"),
    dict(skill="tie a knot", fail="it came undone at once", tip="Go over, under, and through",
         done="tied a knot that held a boat"),
    dict(skill="play the flute", fail="it sounded like a sick goose", tip="Listen first and then \
play", done="played a song so sweet that the birds were silent"),
    dict(skill="dance", fail="{he} stepped on {his} own feet", tip="Listen to the music and count \
to three", done="danced until the moon came up"),
    dict(skill="juggle", fail="all the balls fell down", tip="Start with just two balls",
         done="kept three balls in the air"),
], """
{T}{N} saw how {E} could {skill}. "I want to {skill}, too!" {he} said.
More than anything, {N} wanted to {skill}. All {his} friends could do it, but {N} could not.
{T}{N} decided to learn something new. "[Today|Now] I will learn to {skill}," {he} said.

{He} tried it at once, but {fail}. {He} tried again, and again {fail}. [Someone laughed.|{N} \
turned red.]
The first time, {fail}. The second time, {fail} again. "[I will never learn it|It is too hard]!" \
said {N}.

{^fintro} had seen it. "[I could not do it at first, either|Nobody can do it the first time]," \
said {F}. "{tip}."
"[May I give you some advice|Shall I tell you a secret]?" asked {fintro}. "{tip}. And [do not \
stop trying|try a little every day]."

So {N} practiced [every day|every morning]. On the first day it was [bad|hard]. On the second day \
it was a little better. On the third day it was [better still|almost good].
{N} tried it. It was better, but not yet good. So {he} practiced [the next day|again], and [the \
day after that|once more], and {F} [was always there|helped {him}].

And then, one day, {N} {done}! "[I can {skill}|Look, I can do it]!" {he} [shouted|cried].
At the end of the week, everyone came to watch. {N} {done}. [Everyone clapped.|Nobody laughed \
anymore.]

"[I knew you could do it!|You see?|Look at you!]" said {F}. "[Practice makes it easy|You did not \
give up]."
{^E} [was very proud|smiled]. "[You worked hard for that|I saw how you practiced]," {ehe} said.

{N} had learned more than how to {skill}. {He} had learned [not to give up|to be patient with \
{himself}].
And [soon|the next day], {N} helped [a little mouse|someone else] who wanted to learn to {skill}, \
too.
""")

QUARREL = ([
    dict(thing="ball"), dict(thing="swing"), dict(thing="big cookie"), dict(thing="drum"),
    dict(thing="blue boat"), dict(thing="warm place by the fire"), dict(thing="big umbrella"),
    dict(thing="red crayon"),
], """
{N} had a good friend. It was {fintro}. They did everything together, and they [never|almost \
never] had a fight.
{N} and {fintro} were [good|best] friends. They played {game} every day.

But {T2}they both wanted the {thing}. "It is mine!" said {N}. "No, it is mine!" said {F}.
{T}there was only one {thing}. "I had it first," said {N}. "But I saw it first," said {F}.

{N} pulled, and {F} pulled, and [then they both fell down|nobody won]. "[I will never play with \
you again|You are not my friend anymore]!" said {F}, and {fhe} went home.
They [shouted|argued] until their faces were red. Then {N} went one way, and {F} went the other way.

Now {N} had the {thing} for {himself}, but it was no fun. [{He} missed {F}.|It was very quiet.]
{N} sat {spot1}. {He} was angry. Then {he} was sad. The {thing} [did not matter anymore|was not \
so important].

{^E} sat down beside {him}. "[What is more important, the {thing} or your friend|Do you want to \
be right, or do you want to have a friend]?" {ehe} asked.
"[I miss {F}|I was wrong]," {he} said to {E}. "[Then go and tell {fhim} that|It is never too late \
to say sorry]," said {E}.

{N} went to find {F}. Halfway there, they met. "I am sorry," they both said at the same time, and \
they [had to laugh|laughed].
So {N} went to {F}. "I am sorry," {he} said. "[You can have it|Let us take turns]." "[I am sorry, \
too|We can share it]," said {F}.

[First {N} had a turn, and then {F} had a turn.|They shared the {thing}, and it was twice as much \
fun.]
"[Friends are more important than things|I do not want to fight with you again]," said {N}.
""")

JOURNEY = ([
    dict(goal="the end of the rainbow",
         got="a little rain, a little sun, and a view of the whole land"),
    dict(goal="the highest hill", got="the wide sky and the whole world below"),
    dict(goal="the big sea", got="waves, white shells, and a wind that smelled of salt"),
    dict(goal="the place where the sun sleeps", got="a red sky and the most beautiful evening"),
    dict(goal="the great city", got="a thousand lights and a square full of music"),
    dict(goal="the moon", got="the moon in the water of a quiet lake"),
    dict(goal="the talking tree", got="an old tree, and its leaves whispered in the wind"),
], """
{T}{N} asked {E}, "What is it like at {goal}?" "[I have never been there|Nobody knows]," said \
{E}. "Then I will go and see," said {N}.
{N} had always wanted to see {goal}. {T}{he} packed {food2} and a^ {obj}, and {he} set out.

On the way {he} met {fintro}. "Where are you going?" asked {F}. "To {goal}," said {N}. "[May I \
come with you|I will come, too]," said {F}.
After a mile, {he} met {fintro}, who was [resting|sitting] by the road. "[I am going to \
{goal}.|Do you know the way to {goal}?]" said {N}. "I am going there, too!" said {F}.

They walked over hills and through fields. At night they slept [under the stars|in the hay|under \
a tree]. In the morning they ate {treat}.
They went [up and down|on and on], through [rain and sun|woods and fields]. They sang songs so \
that the way was not so long.

?0.6
Then they came to a wide river. There was no bridge. "[What shall we do|How can we cross it]?" \
asked {F}. {N} [built a raft|found some flat stones], and they came across.
Once they took the wrong road and had to go back. "[It is my fault|I am sorry]," said {F}. \
"[Never mind|That happens]," said {N}. "Now we know one road more."
A^ {adj2} old man sat by the road. He was hungry. {N} and {F} gave him {food2}. "Thank you," he \
said. "You are on the right road."

At last they were there. And what did they find? They found {got}.
After [three|seven] days, they came to {goal}. They saw {got}. They [stood still|said nothing] \
for a long time.

"Is this all?" asked {F}. "[It is more than I hoped for|It is beautiful]," said {N}. "And I have \
you to share it with."
"[Now we have seen it|I will remember this forever]," said {N}. "[Shall we go home|And tomorrow \
we will go home]?" "Yes," said {F}, "and we will tell everyone."

When {he} came home, {E} asked, "What was the best part?" {N} did not have to think. "[The way|My \
new friend]," {he} said.
And when they were home again, they already made plans for the next journey.
""")
