package reachability

import "time"

const (
	// MinAge is how long a connection must stay unreplied to count.
	MinAge = 400 * time.Millisecond
	// timeout is how long a node has to reply; shortTimeout applies if the last reply of each of its ports took less than
	// fastRTT.
	timeout, shortTimeout, fastRTT = 2 * time.Second, time.Second, 100 * time.Millisecond
	// probesPerSuspicion is the number of probes in a suspicion, sent round-robin to the ports that used to reply. Each
	// new source port may take another network path. controlsPerRound is the number of nodes that are probed as controls
	// at the same time.
	probesPerSuspicion, controlsPerRound = 5, 3
	// weakGrace is how long a node counts as still booting if it used to accept connections and now only resets them.
	weakGrace = time.Minute
	// quietPeriod without an ejection clears a node's ejection count. maxReplies limits the number of consecutive replies
	// that a repeatedly ejected node needs.
	quietPeriod, maxReplies = 10 * time.Minute, 64
	// suspectEvery is the minimum time between the starts of two suspicions of a node: a client that a policy denies
	// starts them endlessly. Such a client costs one probe every two seconds, because the first reply ends a suspicion.
	suspectEvery = 2 * time.Second
	// suspectProbes and ejectedProbes limit the probes per second that all detectors with one budget send, to suspected
	// and to ejected nodes. If 300 nodes fail at once, the last one is ejected about nine seconds later. 300 nodes with an
	// endpoint each that does not reply cost 150 probes a second, about 5 ms of CPU time.
	suspectProbes, ejectedProbes = 192, 64
	// kubeletEvery is the minimum time between two probes of a node's kubelet.
	kubeletEvery = time.Minute
	// baselineWithin is the longest time until a node is probed for the first time. In small clusters it is baselineEach
	// per node, but at least a second. So even if all proxies start at once, no node is probed more often than in the
	// largest cluster. baselineEvery is the interval of later probes while nothing is wrong. A missing or slow baseline is
	// recorded again after baselineRetry, and each time after twice the time: a node or a proxy that has just started
	// replies slowly, and suspicions of slow nodes take twice as long.
	baselineWithin, baselineEach = time.Minute, time.Minute / 5000
	baselineEvery, baselineRetry = time.Hour, 10 * time.Second
	// maxBaselineBurst limits the nodes that are probed per second to record their baseline.
	maxBaselineBurst = 128
	// ejectedEvery is the interval of probes of an ejected node, if the budget allows. repliedEvery is how often the
	// connections to the endpoints of all ejected nodes are listed.
	ejectedEvery, repliedEvery = time.Second, 10 * time.Second
	// idleStep is the time until the next step if nothing is due.
	idleStep = time.Second
)
