package status

import "time"

// Page is the JSON of /healthz and /livez. The fields up to status are kube-proxy's, in its order and with its meaning:
// healthy does not depend on the node, and nodeEligible is only in /healthz.
type Page struct {
	LastUpdated  time.Time               `json:"lastUpdated,omitzero"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyStatus `json:"status"`

	// IneligibleReason is why the node is not eligible; only in /healthz.
	IneligibleReason string `json:"notEligible,omitempty"`

	PendingSince time.Time `json:"pendingSince,omitzero"`
	LastFailure  time.Time `json:"lastFailure,omitzero"`
	LastError    string    `json:"lastError,omitempty"`
	// Interruptions are the resources whose watches are interrupted.
	Interruptions []Interruption `json:"interruptions,omitempty"`
	// OtherProxies are the other service proxies on the node, one sentence each.
	OtherProxies []string `json:"otherServiceProxies,omitempty"`
	// InvalidObjects counts the invalid objects. Only pages on the metrics address name them, because this page is
	// accessible to anyone.
	InvalidObjects int `json:"refusedTotal"`
}

// familyStatus is the status of one family.
type familyStatus struct {
	LastUpdated time.Time `json:"lastUpdated,omitzero"`
	Healthy     bool      `json:"healthy"`
}

// readyPage is the JSON of /readyz.
type readyPage struct {
	Ready   bool   `json:"ready"`
	Message string `json:"message"`
}

// newLivePage is the page of /livez, which is about the proxy alone.
func newLivePage(v Health) Page {
	family := familyStatus{LastUpdated: v.LastSuccess, Healthy: v.Healthy}
	p := Page{
		LastUpdated:    v.LastSuccess,
		CurrentTime:    v.At,
		Healthy:        v.Healthy,
		Status:         map[string]familyStatus{"IPv4": family, "IPv6": family},
		PendingSince:   v.PendingSince,
		LastFailure:    v.LastFailure,
		LastError:      v.LastError,
		InvalidObjects: v.InvalidObjects,

		Interruptions: v.Interruptions,
		OtherProxies:  v.OtherProxies,
	}
	if v.Healthy {
		// kube-proxy does the same. Clients older than the field healthy compare the two times: they must be equal while the
		// proxy is healthy, even if nothing has changed for a long time.
		p.LastUpdated = v.At
	}
	return p
}

// newHealthPage is the page of /healthz, which is about the proxy and its node.
func newHealthPage(v Health) Page {
	p := newLivePage(v)
	p.NodeEligible, p.IneligibleReason = &v.NodeEligible, v.IneligibleReason
	if v.Healthy && !v.NodeEligible {
		p.LastUpdated = v.LastSuccess // the node is not eligible, so this must not equal the current time
	}
	return p
}

func newReadyPage(v Health) readyPage {
	return readyPage{Ready: v.Ready, Message: v.ReadySentence()}
}
