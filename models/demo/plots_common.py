"""Beats that every plot shares: how a story opens, what is seen, how it ends."""

# Openings that leave the time open: the plot's first beat then says "One day".
OPEN_STATIC = """
[Once upon a time|Once|Long ago|Once upon a time], there [was|lived] a^ {adj} {kind} {called}. \
{lived}
Once upon a time, [{at}|in a land far away], there lived a^ {adj} {kind} {called}. {lived}
There was once a^ {adj} {kind} {called}. {lived}
[Once upon a time|Long, long ago|Many years ago], a^ {adj} {kind} {called} lived {at}. {sight1}
{^deep}, there lived a^ {adj} {kind} {called}. {sight1}
{^deep} lived a^ {adj} {kind} {called}. {lived}
{N} was a^ {adj} {kind} who lived {at}. {sight1}
{N} was a^ {adj} {kind}. {lived}
In a^ [little|cozy|small|tiny] {home} {at} lived a^ {adj} {kind} {called}.
A^ {adj} {kind} {called} lived {at}. {sight1}
In a quiet corner of the world, {at}, lived a^ {adj} {kind} {called}. {lived}
The {adj} {kind} {at} was called {called2}. {sight1}
This is the story of a^ {adj} {kind} {called}. {lived}
"""

# Openings that set the scene at once: the plot's first beat then needs no "One day".
OPEN_SCENE = """
[One morning|One day|One sunny morning|One fine day][,|] a^ {adj} {kind} {called} [went for a \
walk|was walking|was playing|was sitting] {at}. {sight1}
[One|On a] [bright|warm|cool|windy] [spring|summer|autumn] [day|morning|afternoon][,|] a^ {adj} \
{kind} {called} [set out for a walk|came out of {his} {home}|was sitting in the sun] {at}. {sight1}
It was a [warm|sunny|bright|lovely|fine] [morning|day|afternoon] {at}. {sight1} A^ {adj} {kind} \
{called} [was playing all alone|was looking for something to do|was out for a walk].
It was a [cold|grey|windy|rainy] [morning|day|afternoon] {at}. A^ {adj} {kind} {called} [looked \
out of {his} {home}|was on {his} way home|was thinking about {food}].
The sun was [rising|shining|warm] {at}. {sight1} A^ {adj} {kind} {called} [woke up|stretched| \
yawned] and [smiled|looked around|hurried outside].
The {adj} {kind} was called {N}. [This morning|Today], {he} was [walking|playing|resting] {at}. \
{sight1}
Early [one|in the] morning[,|] a^ {adj} {kind} {called} [woke up|opened {his} eyes] {at}. {sight1}
Late one [evening|afternoon][,|] a^ {adj} {kind} {called} was [walking home|sitting by the fire| \
looking at the sky] {at}. {sight1}
On a [rainy|snowy|windy|foggy] [day|morning][,|] a^ {adj} {kind} {called} was [sitting|waiting] \
in {his} {home} {at}.
"""

HABIT = """
?0.6
{N} loved to [play {game}|eat {food}|listen to stories|sing songs|count the stars| draw \
pictures|collect leaves|dance in the rain|climb and run] [all day long|every day| more than \
anything|with {his} friends|in the morning|after breakfast].
Every [morning|day|evening], {he} [ate {food} for breakfast|played {game}|went to see {his} \
friends|swept the floor of {his} {home}|sang a little song|said hello to everyone {he} met].
{N} had a [big smile|warm heart|good heart|soft voice|loud laugh|blue hat|red coat|long green \
scarf], and [everyone {at} liked {him}|{he} was [always|almost always] [kind|cheerful|friendly]].
{N} was very curious, and {he} [asked many questions|wanted to see the whole world|liked to try \
new things].
{N} was always [hungry|ready for {food}], and {he} could eat {food} from morning until night.
{sight2}
"""

SCENERY = """
?0.4
The wind was [soft|cold|fresh] and the sky was [grey|blue|clear].
{sight2}
{sight2}
A [cloud|bird|leaf] [drifted|sailed] by in the wind.
[Somewhere|Far away], a [bird|bell|cuckoo] could be heard.
The shadows were growing [longer|longer and longer].
"""

ENDING = """
That [night|evening], {N} [went to bed|fell asleep|lay in bed] with a [smile|happy smile|warm \
heart|full heart].
[After that|From that day on|Ever since that day], {N} and {F} [were the best of friends| played \
together every day|always helped each other|met {at} every morning].
And so {N} [went home|walked home|ran home] [happy|singing|smiling|with a light heart].
[It had been|It was] [the best day of the year|a wonderful day|a day {he} would never forget| a \
very good day].
And they all lived happily ever after.
When the stars came out, {N} was [fast asleep|sound asleep] in {his} {home}.
[In the evening|When evening came|That evening], they [sat together|ate {food} together|told each \
other stories] and [watched the stars|laughed|sang songs] until it was time to sleep.
And if you go {there}, you may [still|even] [see {N} and {F} there|hear them laughing].
"""

CLOSING = """
?0.4
The end.
The end.
And that is the end of the story.
Good night, little {kind}.
"""
