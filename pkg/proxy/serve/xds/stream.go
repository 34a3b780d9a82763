package xds

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
)

// maxNames is how many resources of one kind a stream may ask for. A pod dials a handful of Services.
const maxNames = 1000

// maxResponse is about how large a response with endpoints may be: several assignments are sent in as many responses as
// it takes. Clients of gRPC take four megabytes, and one assignment has less than two.
const maxResponse = 64 << 10

var (
	errTooManyNames = errors.New("a stream may ask for " + strconv.Itoa(maxNames) + " resources of a kind")
	errLongName     = errors.New("the name of a resource may have " + strconv.Itoa(maxNameLength) + " bytes")
)

// stream is what one client asked for, and what it was told.
type stream struct {
	domain string
	// only is the type that the stream is for, if its requests say none.
	only          string
	subscriptions [kinds]subscription
}

// subscription is what a client asked of one kind.
type subscription struct {
	names map[string]*ackedState
	// nonce is that of the last response; zero before the first. Only a client that has read the response knows it.
	nonce uint64
	// responseDue: the client waits for an answer, even an empty one.
	responseDue bool
	// unacked is the size of the last response until the client has acknowledged or rejected it. It gets nothing more
	// before that, so a client that never reads costs one response.
	unacked int
}

// ackedState is what a client knows of one name.
type ackedState struct {
	of     portOf
	isSent bool   // it means a Service port at all
	exists bool   // the client has the resource
	sum    uint64 // of the port as the client was last told it; zero for none
}

// requestResult is the outcome of a request.
type requestResult struct {
	// added are new names that may mean a Service port; wrong are new ones that mean none.
	added, removed []portOf
	unknownNames   []string
	rejectedKind   kind
	isNACK         bool
	// read is the size of the response that this request answers.
	read int
}

// handleRequest takes a request in. What it asks for is in the next responses.
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
		return requestResult{} // it crossed a response, and the client will answer that one, too
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

// setNames replaces the names that the client asks for.
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

// unackedBytes is the size of all responses that the client has not answered.
func (s *stream) unackedBytes() int {
	sum := 0
	for of := range s.subscriptions {
		sum += s.subscriptions[of].unacked
	}
	return sum
}

// names counts the resources that the client asks for.
func (s *stream) names() int {
	count := 0
	for of := range s.subscriptions {
		count += len(s.subscriptions[of].names)
	}
	return count
}

// lookup returns what the table has for a Service port.
type lookup func(portOf) (port, bool)

// next returns a response that the client waits for, or that tells what changed; nil if it knows everything. Clusters
// come before their endpoints, and both before the listeners that lead there.
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

// allResources writes all existing resources if the client does not know which exist: a missing one counts as gone.
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

// assignments writes the assignments that the client does not know, as many as fit into one response. One that is gone
// is sent as empty: there is no other way to say it.
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
			break // the rest follows in the next one
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
