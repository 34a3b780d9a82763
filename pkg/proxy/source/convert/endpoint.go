package convert

import (
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// readEndpoints reads the endpoints that the proxy can use: those with an address to which connections may be sent. A
// large cluster has a million endpoints, so the path of a field is built only if the field is invalid. nameOf returns
// an endpoint's name in DNS; it may be nil.
func readEndpoints(
	path *field.Path, family model.Family, entries []discoveryv1.Endpoint,
	nameOf func(*discoveryv1.Endpoint) *string, skipped *skippedParts,
) (endpoints []model.SliceEndpoint, hostnames []string) {
	endpoints = slices.Grow([]model.SliceEndpoint(nil), len(entries)) // exact capacity, as for ports
	hasNames := nameOf != nil && slices.ContainsFunc(entries, func(entry discoveryv1.Endpoint) bool { return nameOf(&entry) != nil })
	for i := range entries {
		entryPath := func() *field.Path { return path.Index(i) }
		addr, rejected := readEndpointAddress(entryPath, family, entries[i].Addresses)
		skipped.add(rejected)
		if len(rejected) > 0 {
			continue
		}
		endpoints = append(endpoints, model.SliceEndpoint{Addr: addr, Endpoint: readEndpoint(entryPath, &entries[i], skipped)})
		if hasNames {
			hostnames = append(hostnames, readName(entryPath, "hostname", nameOf(&entries[i]), dnsLabel, skipped))
		}
	}
	return endpoints, hostnames
}

// readEndpointAddress reads the first address of an endpoint, the only one that a consumer may use (KEP-752: the others
// would be the same endpoint by another name).
func readEndpointAddress(entryPath func() *field.Path, family model.Family, texts []string) (netip.Addr, field.ErrorList) {
	path := func() *field.Path { return entryPath().Child("addresses") }
	if len(texts) == 0 {
		return netip.Addr{}, field.ErrorList{field.Required(path(), "must contain at least 1 address")}
	}
	if addr, ok := parseAddress(texts[0]); ok && notUnicastReason(addr) == "" && model.FamilyOf(addr) == family {
		return addr, nil
	}
	addr, errs := readUnicast(path().Index(0), texts[0])
	if len(errs) == 0 {
		errs = checkFamily(path().Index(0), addr, family, "`addressType`")
	}
	return addr, errs
}

// countMultiAddress counts the endpoints with ignored addresses. A slice has few enough of them for 16 bits.
func countMultiAddress(entries []discoveryv1.Endpoint) (count uint16) {
	for i := range entries {
		if len(entries[i].Addresses) > 1 {
			count++
		}
	}
	return count
}

// readEndpoint reads the fields that decide whether traffic may go to an endpoint. A node or zone with an invalid name
// counts as unknown, and a hint with such a name is ignored: the endpoint itself is still used.
func readEndpoint(entryPath func() *field.Path, entry *discoveryv1.Endpoint, skipped *skippedParts) model.Endpoint {
	endpoint := model.Endpoint{
		Node:        readName(entryPath, "nodeName", entry.NodeName, subdomain, skipped),
		Zone:        readName(entryPath, "zone", entry.Zone, labelValue, skipped),
		Ready:       isTrue(entry.Conditions.Ready, true),
		Serving:     isTrue(entry.Conditions.Serving, true),
		Terminating: isTrue(entry.Conditions.Terminating, false),
	}
	if entry.Hints != nil {
		endpoint.HintNodes, endpoint.HintZones = readHints(entryPath().Child("hints"), entry.Hints, skipped)
	}
	return endpoint
}

// isTrue reads a condition. defaultValue applies if it is not set.
func isTrue(condition *bool, defaultValue bool) bool {
	if condition == nil {
		return defaultValue
	}
	return *condition
}

// nameRule is a rule for valid names.
type nameRule struct {
	check func(name string) []string
	// isSimple reports whether a name certainly follows the rule. The library's checks are regular expressions: they take
	// 0.8 us for a node and a zone, which was two thirds of the time for an endpoint.
	isSimple func(name string) bool
}

// The rules. A hostname is a label of a DNS name: one with a dot would be several.
var (
	subdomain  = nameRule{validation.IsDNS1123Subdomain, isSimpleName}
	labelValue = nameRule{validation.IsValidLabelValue, isSimpleName}
	dnsLabel   = nameRule{validation.IsDNS1123Label, isSimpleLabel}
)

// readName reads a name of an endpoint, or of its node or zone; empty if it is not set or invalid. The API server
// checks the name of a node only while the endpoints change, and never checks the name of a zone.
func readName(entryPath func() *field.Path, child string, name *string, rule nameRule, skipped *skippedParts) string {
	switch {
	case name == nil || *name == "":
		return ""
	case rule.isSimple(*name):
		return *name
	}
	if rejected := invalid(entryPath().Child(child), *name, rule.check(*name)); len(rejected) > 0 {
		skipped.add(rejected)
		return ""
	}
	return *name
}

// isSimpleName reports whether a name is certainly valid, both as a node's name and as a label's value: it consists of
// lower-case letters, digits, dashes and dots, each part between dots begins and ends with a letter or digit, and it is
// no longer than a label's value may be.
func isSimpleName(name string) bool {
	afterAlphanumeric := false // the previous byte is a letter or digit
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			afterAlphanumeric = true
		case c == '-' && i > 0 && name[i-1] != '.':
			afterAlphanumeric = false
		case c == '.' && afterAlphanumeric:
			afterAlphanumeric = false
		default:
			return false
		}
	}
	return afterAlphanumeric && len(name) <= validation.LabelValueMaxLength
}

// isSimpleLabel reports whether a name is certainly a valid label of a DNS name.
func isSimpleLabel(name string) bool { return isSimpleName(name) && !strings.Contains(name, ".") }

// readHints reads the nodes and zones for which an endpoint is hinted. The empty zone is a hint like any other: it
// means the nodes that have no zone, as in kube-proxy.
func readHints(path *field.Path, hints *discoveryv1.EndpointHints, skipped *skippedParts) (forNodes, forZones []string) {
	nodes := make([]string, 0, len(hints.ForNodes))
	for _, hint := range hints.ForNodes {
		nodes = append(nodes, hint.Name)
	}
	zones := make([]string, 0, len(hints.ForZones))
	for _, hint := range hints.ForZones {
		zones = append(zones, hint.Name)
	}
	return readHintNames(path.Child("forNodes"), nodes, validation.IsDNS1123Subdomain, skipped),
		readHintNames(path.Child("forZones"), zones, validation.IsValidLabelValue, skipped)
}

// readHintNames returns the valid names, each once. If there are more than the API server allows, all are ignored.
func readHintNames(path *field.Path, names []string, rule func(string) []string, skipped *skippedParts) []string {
	if rejected := checkLength(path, len(names), maxEndpointHints); len(rejected) > 0 {
		skipped.add(rejected)
		return nil
	}
	var valid []string
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		rejected := invalid(path.Index(i).Child("name"), name, rule(name))
		skipped.add(rejected)
		if len(rejected) == 0 && !seen[name] {
			valid = append(valid, name)
		}
		seen[name] = true
	}
	return valid
}
