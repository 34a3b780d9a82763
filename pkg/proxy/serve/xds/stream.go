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
	of     portOf
	isSent bool   // the name has the form of a Service port
	exists bool   // the client has the resource
	sum    uint64 // of the port that was last sent to the client; zero if none
}

// requestResult is the outcome of a request.
type requestResult struct {
	// added are the ports of new names that have the form of a Service port, removed those of names that are no longer
	// subscribed. unknownNames are new names of another form.
	added, removed []portOf
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
	of, ok := kindOf(r.typeURL)
	if !ok {
		return requestResult{} // secrets, routes and the like
	}
	a := &s.subscriptions[of]
	if a.nonce != 0 && r.nonce != strconv.FormatUint(a.nonce, 10) {
		return requestResult{} // sent before the client got the last response, which it will acknowledge, too
	}
	result := requestResult{rejectedKind: of, isNACK: r.isNACK && a.nonce != 0, read: a.unacked}
	a.unacked = 0
	isFirst := a.names == nil
	if isFirst {
		a.names = map[string]*ackedState{}
	}
	s.setNames(a, r.names, &result)
	a.responseDue = a.responseDue || isFirst || len(result.added)+len(result.unknownNames) > 0
	return result
}

// setNames replaces the subscribed names.
func (s *stream) setNames(a *subscription, names []string, result *requestResult) {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		if wanted[name] {
			continue
		}
		wanted[name] = true
		if a.names[name] != nil {
			continue
		}
		of, isKnown := parseName(name, s.domain)
		a.names[name] = &ackedState{of: of, isSent: isKnown}
		if isKnown {
			result.added = append(result.added, of)
		} else {
			result.unknownNames = append(result.unknownNames, name)
		}
	}
	if len(a.names) == len(wanted) {
		return
	}
	for name, t := range a.names {
		if !wanted[name] {
			delete(a.names, name)
			if t.isSent {
				result.removed = append(result.removed, t.of)
			}
		}
	}
}

// unackedBytes returns the size of all responses that the client has not acknowledged or rejected.
func (s *stream) unackedBytes() int {
	sum := 0
	for of := range s.subscriptions {
		sum += s.subscriptions[of].unacked
	}
	return sum
}

// names returns the number of subscribed resources.
func (s *stream) names() int {
	count := 0
	for of := range s.subscriptions {
		count += len(s.subscriptions[of].names)
	}
	return count
}

// lookup returns the table's entry of a Service port.
type lookup func(portOf) (port, bool)

// next returns a response that the client waits for, or that contains changes; nil if the client is up to date.
// Clusters precede their endpoints, and both precede the listeners that lead there.
func (s *stream) next(look lookup, version string) (kind, []byte) {
	for of := range kinds {
		a := &s.subscriptions[of]
		if a.unacked > 0 {
			continue
		}
		var resources message
		var isNews bool
		if of == assignments {
			resources, isNews = a.assignments(look)
		} else {
			resources, isNews = a.allResources(of, look)
		}
		if !isNews && !a.responseDue {
			continue
		}
		a.responseDue = false
		a.nonce = max(1, rand.Uint64())
		response := append(message(nil).head(of, version, strconv.FormatUint(a.nonce, 10)), resources...)
		a.unacked = len(response)
		return of, response
	}
	return 0, nil
}

// allResources writes all existing resources if the client does not have exactly these: a missing resource counts as
// deleted.
func (a *subscription) allResources(of kind, look lookup) (resources message, isNews bool) {
	isNews = a.responseDue
	for _, t := range a.names {
		_, is := t.lookup(look)
		isNews = isNews || is != t.exists
		t.exists = is
	}
	if !isNews {
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(a.names)) {
		if a.names[name].exists {
			resources = resources.resource(of, name, "")
		}
	}
	return resources, true
}

// assignments writes the assignments that changed for the client, as many as fit into one response. A deleted one is
// sent as empty: the protocol has no other way.
func (a *subscription) assignments(look lookup) (resources message, isNews bool) {
	var news []string
	for name, t := range a.names {
		if now, is := t.lookup(look); now.sum != t.sum || is && !t.exists {
			news = append(news, name)
		}
	}
	slices.Sort(news)
	for _, name := range news {
		t := a.names[name]
		now, _ := t.lookup(look)
		if len(resources) > 0 && len(resources)+len(now.localities) > maxResponse {
			break // the rest follows in the next response
		}
		resources = resources.resource(assignments, name, now.localities)
		t.exists, t.sum = true, now.sum
	}
	return resources, len(news) > 0
}

func (t *ackedState) lookup(look lookup) (port, bool) {
	if !t.isSent {
		return port{}, false
	}
	return look(t.of)
}
