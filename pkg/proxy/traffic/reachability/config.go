package reachability

import "time"

const (
	// minAge is how much later a connection must still be unreplied to count.
	minAge = 400 * time.Millisecond
	// timeout is how long a node has to reply, and shortTimeout if it used to reply within fastRTT.
	timeout, shortTimeout, fastRTT = 2 * time.Second, time.Second, 100 * time.Millisecond
	// probesPerSuspicion are sent during a suspicion, to the ports that used to reply in turn. A new source port may take another
	// path. controlsPerRound are the nodes that are probed at the same time.
	probesPerSuspicion, controlsPerRound = 5, 3
	// weakFor is how long a node that used to accept connections and now only resets them counts as still booting.
	weakFor = time.Minute
	// quietPeriod is how long a node must go without an ejection until earlier ones are forgotten. maxReplies is the most
	// replies in a row that a node needs if it is ejected again and again.
	quietPeriod, maxReplies = 10 * time.Minute, 64
	// suspectEvery is the least time between the starts of two suspicions of a node: a client that is denied raises them
	// without end. One such client costs a probe in two seconds, as the first reply ends a suspicion.
	suspectEvery = 2 * time.Second
	// suspectProbes and ejectedProbes are how many probes all detectors with one budget send in a second at most, to suspects
	// and to nodes that are ejected. Of 300 nodes that die at once, the last is ejected some nine seconds later. 300 nodes
	// with an endpoint each that does not reply cost 150 probes a second, some 5 ms of processor time.
	suspectProbes, ejectedProbes = 192, 64
	// kubeletEvery is the least time between two probes of a node's kubelet.
	kubeletEvery = time.Minute
	// baselineWithin is when a node is probed for the first time, sooner where there are few: baselineEach for each of them,
	// but no less than a second. So no node is probed more often by all that start at once than in the largest cluster.
	// baselineEvery is how often it is probed later, while nothing is wrong.
	baselineWithin, baselineEach, baselineEvery = time.Minute, time.Minute / 5000, time.Hour
	// maxBaselineBurst is how many nodes are probed in a second at most to learn their baseline.
	maxBaselineBurst = 128
	// ejectedEvery is how often a node that is ejected is probed, if there is room, and repliedEvery how often connections
	// to the endpoints of all that are ejected are listed.
	ejectedEvery, repliedEvery = time.Second, 10 * time.Second
	// idleStep is the time until the next step when nothing is due.
	idleStep = time.Second
)
