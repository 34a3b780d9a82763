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
	// defaultType is the type of resources for requests without a type.
	defaultType   string
	subscriptions [numKinds]subscription
}

// subscription is a client's subscription to one kind.
type subscription struct {
	names map[string]*sentState
	// nonce is the nonce of the last response; zero before the first. Only a client that has read the response has it.
	nonce uint64
	// responseDue is set if the client waits for a response, even an empty one.
	responseDue bool
	// unacked is the size of the last response until the client has acknowledged or rejected it. Until then the client
	// gets no other response of this kind, so a client that never reads costs one response.
	unacked int
}

// sentState is the state of one name that was last sent to the client.
type sentState struct {
	ref        portRef
	isPortName bool   // the name has the form of a Service port
	exists     bool   // the client has the resource
	sum        uint64 // of the port that was last sent to the client; zero if none
}

// requestResult is the outcome of a request.
type requestResult struct {
	// added are the ports of new names that have the form of a Service port, removed those of names that are no longer
	// subscribed. unknownNames are new names of another form.
	added, removed []portRef
	unknownNames   []string
	requestKind    kind
	isNACK         bool
	// ackedBytes is the size of the response that this request acknowledges or rejects.
	ackedBytes int
}

// handleRequest processes a request. The next responses contain what it subscribes to.
func (s *stream) handleRequest(r request) requestResult {
	if r.typeURL == "" {
		r.typeURL = s.defaultType
	}
	k, ok := kindOf(r.typeURL)
	if !ok {
		return requestResult{} // a type that is not served, such as secrets or routes
	}
	sub := &s.subscriptions[k]
	if sub.nonce != 0 && r.nonce != strconv.FormatUint(sub.nonce, 10) {
		return requestResult{} // sent before the client got the last response, which it will acknowledge, too
	}
	result := requestResult{requestKind: k, isNACK: r.isNACK && sub.nonce != 0, ackedBytes: sub.unacked}
	sub.unacked = 0
	isFirst := sub.names == nil
	if isFirst {
		sub.names = map[string]*sentState{}
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
		sub.names[name] = &sentState{ref: ref, isPortName: ok}
		if ok {
			result.added = append(result.added, ref)
		} else {
			result.unknownNames = append(result.unknownNames, name)
		}
	}
	if len(sub.names) == len(subscribed) {
		return
	}
	for name, state := range sub.names {
		if !subscribed[name] {
			delete(sub.names, name)
			if state.isPortName {
				result.removed = append(result.removed, state.ref)
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

// nameCount returns the number of subscribed resources.
func (s *stream) nameCount() int {
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
	for k := range numKinds {
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
	for _, state := range sub.names {
		_, exists := state.lookup(find)
		hasChanged = hasChanged || exists != state.exists
		state.exists = exists
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
	for name, state := range sub.names {
		if current, exists := state.lookup(find); current.sum != state.sum || exists && !state.exists {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		state := sub.names[name]
		current, _ := state.lookup(find)
		if len(resources) > 0 && len(resources)+len(current.localities) > maxResponse {
			break // the rest follows in the next response
		}
		resources = resources.resource(assignments, name, current.localities)
		state.exists, state.sum = true, current.sum
	}
	return resources, len(changed) > 0
}

func (s *sentState) lookup(find lookup) (port, bool) {
	if !s.isPortName {
		return port{}, false
	}
	return find(s.ref)
}
