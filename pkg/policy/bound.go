package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Annotations of a Service whose load is bounded.
const (
	// MaxLoadAnnotation says how much any endpoint may expect, in percent of the mean of all: "120%".
	MaxLoadAnnotation = Domain + "max-load"
	// ClientsAnnotation names the Services whose endpoints ask this one: "ingress/nginx, shop/frontend".
	ClientsAnnotation = Domain + "clients"
)

// ModeBalanced is a value of TopologyModeAnnotation: a bound of DefaultMaxLoad, unless MaxLoadAnnotation says another
// one, on the topology keys, else on spec.trafficDistribution, else on zones. Kubernetes leaves values with a domain to
// heuristics like this one, and its EndpointSlice controller reads them as Disabled.
const ModeBalanced = Domain + "balanced"

// The bounds of a bound, in percent, and the one of ModeBalanced: as much as Kubernetes' own mode Auto tolerates.
const (
	LeastMaxLoad   = 100
	MostMaxLoad    = 1000
	DefaultMaxLoad = 120
)

// MaxClients is how many Services may be named as clients.
const MaxClients = 8

// ParseMaxLoad reads a bound, in percent: a whole number from LeastMaxLoad to MostMaxLoad and a percent sign. The error
// says what was probably meant.
func ParseMaxLoad(value string) (percent uint64, err error) {
	digits, isPercent := strings.CutSuffix(value, "%")
	percent, err = strconv.ParseUint(digits, 10, 16)
	isPlain := err == nil && digits == strconv.FormatUint(percent, 10)
	if isPercent && isPlain && LeastMaxLoad <= percent && percent <= MostMaxLoad {
		return percent, nil
	}
	return 0, fmt.Errorf("%.*q is no bound; write a whole percentage from %d%% to %d%%%s",
		maxQuoted, value, LeastMaxLoad, MostMaxLoad, meantPercent(value))
}

// number is a number as people write one: 1.2, 120, 120 %, 1.2x, 0120.
var number = regexp.MustCompile(`^\s*([0-9]{1,4})(?:[.,]([0-9]{1,2}))?\s*(?:%|x|times)?\s*$`)

// meantPercent suggests what somebody meant that wrote 1.2, or 120, or 120 %.
func meantPercent(value string) string {
	parts := number.FindStringSubmatch(value)
	if parts == nil {
		return ", such as \"120%\""
	}
	whole, _ := strconv.ParseUint(parts[1], 10, 16)
	hundredths, _ := strconv.ParseUint((parts[2] + "00")[:2], 10, 16)
	meant := whole
	if whole < 10+1 && !strings.Contains(value, "%") { // a factor
		meant = 100*whole + hundredths
	}
	if meant < LeastMaxLoad || meant > MostMaxLoad {
		return ", such as \"120%\""
	}
	return fmt.Sprintf("; did you mean \"%d%%\"?", meant)
}

// ParseClients reads the Services that ask a Service: a list of namespace/name, which must not have its own.
func ParseClients(value, own string) ([]string, error) {
	if count := strings.Count(value, ",") + 1; count > MaxClients {
		return nil, fmt.Errorf("%d clients are named, and at most %d are allowed; name those that ask most", count, MaxClients)
	}
	namespace, _, _ := strings.Cut(own, "/")
	var clients []string
	for i, entry := range strings.Split(value, ",") {
		client := strings.TrimSpace(entry)
		if reason := notAClient(client, own, namespace, clients); reason != "" {
			return nil, fmt.Errorf("entry %d %.*q %s", i+1, maxQuoted, client, reason)
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// notAClient returns why an entry names no client, after those before it; empty if it does.
func notAClient(client, own, namespace string, before []string) string {
	inNamespace, name, hasBoth := strings.Cut(client, "/")
	switch {
	case client == "":
		return "is empty; name a Service as namespace/name, or remove the extra comma"
	case !hasBoth:
		return fmt.Sprintf("has no namespace; write %q if the Service is in this one", namespace+"/"+client)
	case len(content.IsDNS1123Label(inNamespace)) > 0 || len(content.IsDNS1123Label(name)) > 0:
		return "is not the namespace and name of a Service"
	case client == own:
		return "is this Service itself; name those that dial it"
	case slices.Contains(before, client):
		return "is named twice; name each client once"
	}
	return ""
}

// preferred are the keys that a value of spec.trafficDistribution stands for, as the EndpointSlice controller writes
// hints for it.
func preferred(trafficDistribution string) []Key {
	switch trafficDistribution {
	case PreferSameZone, PreferClose:
		return []Key{Zone, AnyNode}
	case PreferSameNode:
		return []Key{Hostname, Zone, AnyNode}
	}
	return nil
}

// readBound reads what bounds the load, after the keys.
func (t *Topology) readBound(words Words) {
	mode := ModeOf(words.Annotations)
	isBalanced := mode.Value == ModeBalanced
	value, present := words.Annotations[MaxLoadAnnotation]
	keys, reason := t.boundKeys(words, isBalanced)
	if reason == "" && mode.IsAuto() {
		reason = "a bound may not be used with " + mode.Annotation + ": " + mode.Value + "; remove one of the two"
	}
	limit, source := cmp.Or(words.DefaultMaxLoad, DefaultMaxLoad), mode.Annotation
	switch {
	case present:
		source = MaxLoadAnnotation
		if asked, err := ParseMaxLoad(value); err != nil {
			t.ignore(source, err.Error())
			if reason != "" {
				return
			}
		} else {
			limit = asked
		}
	case !isBalanced && (words.DefaultMaxLoad == 0 || reason != ""):
		return
	}
	if reason != "" {
		t.ignore(source, reason)
		return
	}
	t.Keys, t.MaxLoad = keys, limit
}

// boundKeys returns the keys on which a bound works, or why there are none.
func (t *Topology) boundKeys(words Words, isBalanced bool) (keys []Key, reason string) {
	_, hasKeys := words.Annotations[TopologyKeysAnnotation]
	keys = t.Keys
	switch {
	case words.ExternalTrafficLocal:
		return nil, "a bound " + LocalConflict + "; set externalTrafficPolicy to Cluster, or remove the bound"
	case hasKeys && len(keys) == 0:
		return nil, "the topology keys that it bounds are ignored; mend " + TopologyKeysAnnotation
	case len(keys) == 1 && keys[0] == AnyNode:
		return nil, "the only topology key is *, which prefers no endpoint, so there is nothing to bound; " +
			"add a key before it, such as " + string(Zone)
	case !hasKeys:
		keys = preferred(words.TrafficDistribution)
	}
	if len(keys) == 0 && isBalanced {
		keys = []Key{Zone, AnyNode}
	}
	if len(keys) == 0 {
		return nil, "nothing says which endpoints are near; add " + TopologyKeysAnnotation + " or spec.trafficDistribution, or set " +
			TopologyModeAnnotation + " to " + ModeBalanced + ", or remove the bound"
	}
	return keys, ""
}

// readClients reads who asks, after the bound.
func (t *Topology) readClients(words Words) {
	value, present := words.Annotations[ClientsAnnotation]
	if !present {
		return
	}
	clients, err := ParseClients(value, words.Service)
	switch {
	case err != nil:
		t.ignore(ClientsAnnotation, err.Error())
	case t.MaxLoad == 0:
		t.ignore(ClientsAnnotation, "clients are what a bound reckons with, and there is none; add "+MaxLoadAnnotation)
	default:
		t.Clients = clients
	}
}
