package v1alpha1

import (
	"encoding/json"
	"fmt"
)

// DemandBacklogAnnotation is an annotation of the Lease DemandLeaseName: a DemandBacklog as JSON. It is missing while
// no ServiceDemand waits. MaxDemandBacklog bounds it, in bytes: every proxy reads the Lease up to four times a minute.
const (
	DemandBacklogAnnotation = "vicinity.dev/demand-backlog"
	MaxDemandBacklog        = 2048
)

// DemandBacklog describes the ServiceDemands that wait because the publisher's budget is used up.
type DemandBacklog struct {
	// Waiting is their number, and LongestSeconds the longest time that one has waited.
	Waiting        int   `json:"waiting"`
	LongestSeconds int64 `json:"longestSeconds"`
	// Services are the times in seconds that Services have waited, by namespace/name: at most 32, those that changed most.
	Services map[string]int64 `json:"services,omitempty"`
}

// MaxBacklogServices is the maximum number of Services in a DemandBacklog.
const MaxBacklogServices = 32

// Fits reports whether there is room for another Service in the annotation.
func (b *DemandBacklog) Fits(service string) bool {
	const overhead, perService = len(`{"waiting":,"longestSeconds":,"services":{}}`) + 2*20, len(`"":,`) + 10
	size := overhead + len(service) + perService
	for name := range b.Services {
		size += len(name) + perService
	}
	return len(b.Services) < MaxBacklogServices && size <= MaxDemandBacklog
}

// String returns the value of the annotation; empty if nothing waits.
func (b DemandBacklog) String() string {
	if b.Waiting == 0 {
		return ""
	}
	text, _ := json.Marshal(b) //nolint:errchkjson // of numbers and strings
	return string(text)
}

// ParseDemandBacklog parses the annotation; an empty text means that nothing waits. It is an error if the text is
// larger than MaxDemandBacklog, or is not what String writes.
func ParseDemandBacklog(text string) (b DemandBacklog, err error) {
	if len(text) > MaxDemandBacklog {
		return DemandBacklog{}, fmt.Errorf("annotation %s: %d bytes, at most %d allowed", DemandBacklogAnnotation, len(text), MaxDemandBacklog)
	}
	if text == "" {
		return DemandBacklog{}, nil
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return DemandBacklog{}, fmt.Errorf("annotation %s: %w: %.100q", DemandBacklogAnnotation, err, text)
	}
	return b, nil
}
