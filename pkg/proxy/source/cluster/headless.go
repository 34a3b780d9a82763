package cluster

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// headlessSlices names the slices of headless Services in messages and outages.
const headlessSlices = "endpointslices/headless"

// slicesOfHeadless are followed while a headless Service names topology keys. Until they are listed such a Service has no
// endpoints, and DNS leaves its name to others.
func slicesOfHeadless(w *Watcher) *onDemand {
	return &onDemand{
		choose: always(source{resource: headlessSlices, asked: []asked{w.headlessSlices()}}),
		wants:  func(s *state) wanted { return wanted{isNeeded: s.needsHeadless()} }, drop: (*state).dropHeadless,
	}
}

func (w *Watcher) headlessSlices() asked {
	return w.ask(convert.HeadlessSlices, headlessSlices)
}

// needsHeadless reports whether a headless Service is ours, so that the slices of headless Services must be known.
func (s *state) needsHeadless() bool { return len(s.headless) > 0 }

// decideSlice delivers a slice. A slice that gets or loses the label of headless Services moves from one watch to the
// other: what is gone from one may already be in the other.
func (s *state) decideSlice(key convert.ObjectKey, before, value any) {
	if value == nil {
		other := convert.HeadlessSlices
		if key.Kind == other {
			other = convert.EndpointSlices
		}
		value = s.objects[other][key.Name].value
	}
	key.Kind.Note(&s.change, key.Name, value)
	was, _ := before.(*model.EndpointSlice)
	now, _ := value.(*model.EndpointSlice)
	s.nodes.NoteSlice(was, now)
}

// endpoints yields all slices.
func (s *state) endpoints(yield func(*model.EndpointSlice) bool) {
	for _, kind := range []*convert.Kind{convert.EndpointSlices, convert.HeadlessSlices} {
		for _, kept := range s.objects[kind] {
			if slice, isGood := kept.value.(*model.EndpointSlice); isGood && !yield(slice) {
				return
			}
		}
	}
}

// dropHeadless takes the slices of headless Services back, unless a Service needs them again. It reports whether it has.
func (s *state) dropHeadless() bool {
	if s.needsHeadless() {
		return false
	}
	for name := range s.objects[convert.HeadlessSlices] {
		s.remove(convert.HeadlessSlices, name)
	}
	return true
}
