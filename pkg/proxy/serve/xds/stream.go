package xds

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
)

// maxNames is the number of resources of one kind that a stream may subscribe to. A pod dials a handful of Services.
const maxNames = 1000

// maxResponse is the approximate maximum size of a response with endpoints: several assignments are sent in as many
// responses as necessary. gRPC clients accept four megabytes, and one assignment has less than two.
const maxResponse = 64 << 10

var (
	errTooManyNames = errors.New("the limit for a stream is " + strconv.Itoa(maxNames) + " resources of a kind")
	errLongName     = errors.New("the limit for the name of a resource is " + strconv.Itoa(maxNameLength) + " bytes")
)

// stream holds the subscriptions of one client's stream.
type stream struct {
	domain string
	// only is the type of resources for requests without a type.
	only          string
	subscriptions [kinds]subscription
}

// subscription is a client's subscription to one kind.
type subscription struct {
	names map[string]*ackedState
	// nonce is the nonce of the last response; zero before the first. Only a client that has read the response has it.
	nonce uint64
	// responseDue is set if the client waits for a response, even an empty one.
	responseDue bool
	// unacked is the size of the last response until the client has acknowledged or rejected it. Until then the client
	// gets no other response of this kind, so a client that never reads costs one response.
	unacked int
}

// ackedState is the state of one name that was last sent to the client.
type ackedState struct {
	ref    portRef
	isSent bool   // the name has the form of a Service port
	exists bool   // the client has the resource
	sum    uint64 // of the port that was last sent to the client; zero if none
}

// requestResult is the outcome of a request.
type requestResult struct {
	// added are the ports of new names that have the form of a Service port, removed those of names that are no longer
	// subscribed. unknownNames are new names of another form.
	added, removed []portRef
	unknownNames   []string
	rejectedKind   kind
	isNACK         bool
	// read is the size of the response that this request acknowledges or rejects.
	read int
}

// handleRequest processes a request. The next responses contain what it subscribes to.
func (s *stream) handleRequest(r request) requestResult {
	if r.typeURL == "" {
		r.typeURL = s.only
	}
	k, ok := kindOf(r.typeURL)
	if !ok {
		return requestResult{} // a type that is not served, such as secrets or routes
	}
	sub := &s.subscriptions[k]
	if sub.nonce != 0 && r.nonce != strconv.FormatUint(sub.nonce, 10) {
		return requestResult{} // sent before the client got the last response, which it will acknowledge, too
	}
	result := requestResult{rejectedKind: k, isNACK: r.isNACK && sub.nonce != 0, read: sub.unacked}
	sub.unacked = 0
	isFirst := sub.names == nil
	if isFirst {
		sub.names = map[string]*ackedState{}
	}
	s.setNames(sub, r.names, &result)
	sub.responseDue = sub.responseDue || isFirst || len(result.added)+len(result.unknownNames) > 0
	return result
}

// setNames replaces the subscribed names.
func (s *stream) setNames(sub *subscription, names []string, result *requestResult) {
	subscribed := make(map[string]bool, len(names))
	for _, name := range names {
		if subscribed[name] {
			continue
		}
		subscribed[name] = true
		if sub.names[name] != nil {
			continue
		}
		ref, ok := parseName(name, s.domain)
		sub.names[name] = &ackedState{ref: ref, isSent: ok}
		if ok {
			result.added = append(result.added, ref)
		} else {
			result.unknownNames = append(result.unknownNames, name)
		}
	}
	if len(sub.names) == len(subscribed) {
		return
	}
	for name, t := range sub.names {
		if !subscribed[name] {
			delete(sub.names, name)
			if t.isSent {
				result.removed = append(result.removed, t.ref)
			}
		}
	}
}

// unackedBytes returns the size of all responses that the client has not acknowledged or rejected.
func (s *stream) unackedBytes() int {
	sum := 0
	for k := range s.subscriptions {
		sum += s.subscriptions[k].unacked
	}
	return sum
}

// names returns the number of subscribed resources.
func (s *stream) names() int {
	count := 0
	for k := range s.subscriptions {
		count += len(s.subscriptions[k].names)
	}
	return count
}

// lookup returns the table's entry of a Service port.
type lookup func(portRef) (port, bool)

// next returns a response that the client waits for, or that contains changes; nil if the client is up to date.
// Clusters precede their endpoints, and both precede the listeners that lead there.
func (s *stream) next(find lookup, version string) (kind, []byte) {
	for k := range kinds {
		sub := &s.subscriptions[k]
		if sub.unacked > 0 {
			continue
		}
		var resources message
		var hasChanged bool
		if k == assignments {
			resources, hasChanged = sub.assignments(find)
		} else {
			resources, hasChanged = sub.allResources(k, find)
		}
		if !hasChanged && !sub.responseDue {
			continue
		}
		sub.responseDue = false
		sub.nonce = max(1, rand.Uint64())
		response := append(message(nil).head(k, version, strconv.FormatUint(sub.nonce, 10)), resources...)
		sub.unacked = len(response)
		return k, response
	}
	return 0, nil
}

// allResources writes all existing resources if the client does not have exactly these: a missing resource counts as
// deleted.
func (sub *subscription) allResources(k kind, find lookup) (resources message, hasChanged bool) {
	hasChanged = sub.responseDue
	for _, t := range sub.names {
		_, exists := t.lookup(find)
		hasChanged = hasChanged || exists != t.exists
		t.exists = exists
	}
	if !hasChanged {
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(sub.names)) {
		if sub.names[name].exists {
			resources = resources.resource(k, name, "")
		}
	}
	return resources, true
}

// assignments writes the assignments that changed for the client, as many as fit into one response. A deleted one is
// sent as empty: the protocol has no other way.
func (sub *subscription) assignments(find lookup) (resources message, hasChanged bool) {
	var changed []string
	for name, t := range sub.names {
		if now, exists := t.lookup(find); now.sum != t.sum || exists && !t.exists {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		t := sub.names[name]
		now, _ := t.lookup(find)
		if len(resources) > 0 && len(resources)+len(now.localities) > maxResponse {
			break // the rest follows in the next response
		}
		resources = resources.resource(assignments, name, now.localities)
		t.exists, t.sum = true, now.sum
	}
	return resources, len(changed) > 0
}

func (a *ackedState) lookup(find lookup) (port, bool) {
	if !a.isSent {
		return port{}, false
	}
	return find(a.ref)
}
