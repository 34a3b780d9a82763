package reachability

import "time"

// rules are the numbers. Tests switch a guard off with others.
type rules struct {
	// again is how much later a connection must still be unanswered to count.
	again time.Duration
	// window is how long a node has to answer, and shortWindow if it used to answer within soon.
	window, shortWindow, soon time.Duration
	// dials are made in a window, each an eighth of it after the one before. A new port may take another path.
	dials int
	// controls are others that are dialled at the same time; without any, their answers are not asked for.
	controls int
	// trials are under way at a time.
	trials int
	// learned: only a node that has answered before can be judged.
	learned bool
	// flows: answered connections acquit.
	flows bool
	// reset is how long a node that used to accept dials and now resets them counts as still booting.
	reset time.Duration
	// disbelief is how long a pair that cried wolf is not believed, the first time and at most.
	disbelief, longestDisbelief time.Duration
	// pairs are remembered.
	pairs int
	// calm is how long a node must go without a fall until earlier falls are forgotten; mostAnswers is the most answers in
	// a row that a node needs which falls again and again.
	calm        time.Duration
	mostAnswers int
}

var defaults = rules{
	again:  400 * time.Millisecond,
	window: 2 * time.Second, shortWindow: time.Second, soon: 100 * time.Millisecond,
	dials: 4, controls: 3, trials: 128, learned: true, flows: true,
	reset:     time.Minute,
	disbelief: 2 * time.Second, longestDisbelief: 64 * time.Second, pairs: 4096,
	calm: 10 * time.Minute, mostAnswers: 64,
}

const (
	// learnWithin is when a node is dialled for the first time, sooner where there are few: learnEach for each of them, but no
	// less than a second. So no node is dialled more often by all that start at once than in the largest cluster. learnAgain is
	// how often it is dialled later, while nothing is wrong.
	learnWithin, learnEach, learnAgain = time.Minute, time.Minute / 5000, time.Hour
	// learnAtOnce is how many nodes are dialled at most in a second to learn how they answer.
	learnAtOnce = 128
	// backEvery is how often a node that is out is dialled, and backPerSecond how many of them are at most.
	backEvery, backPerSecond = time.Second, 128
	// idle is the time until the next step when nothing is due.
	idle = time.Second
	// parts of a window: a dial at the beginning of each, until there are enough.
	parts = 8
)
