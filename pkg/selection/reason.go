package selection

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Code is a stable name of a reason, safe to alert on.
type Code string

// Reason is the reason for a choice, or for the exclusion of an endpoint. It is small, and formats no text until
// Sentence is called.
type Reason struct {
	Code     Code
	Key      string         // the topology key, node label, kind of hint, policy or address
	Value    string         // its value
	Endpoint netip.AddrPort // the endpoint that caused it, or the first of several; the zero value if none did
	Load     *Load          // the numbers of a load-bounded Service
	Until    *time.Time     // when the evacuation of an endpoint's node ends; nil if it has no end
	Since    time.Time      // when an endpoint's node became unreachable; zero if unknown
}

// Why a choice has endpoints.
const (
	MatchedTopologyKey            Code = "MatchedTopologyKey"
	MatchedTopologyKeyTerminating Code = "MatchedTopologyKeyTerminating"
	MatchedAnyNode                Code = "MatchedAnyNode"
	MatchedAnyNodeTerminating     Code = "MatchedAnyNodeTerminating"

	WithinLoadBound   Code = "WithinLoadBound"
	Spillover         Code = "Spillover"
	NoNearEndpoints   Code = "NoNearEndpoints"
	LoadBoundExceeded Code = "LoadBoundExceeded"
	NodesUnknown      Code = "NodesUnknown"

	HintedForThisNode                    Code = "HintedForThisNode"
	HintedForThisZone                    Code = "HintedForThisZone"
	HintedForThisZoneNotNode             Code = "HintedForThisZoneNotNode"
	HintedForThisZoneNodeHintsIncomplete Code = "HintedForThisZoneNodeHintsIncomplete"

	AllEndpoints      Code = "AllEndpoints"
	HintsIncomplete   Code = "HintsIncomplete"
	NoHintForThisNode Code = "NoHintForThisNode"
	NoHintForThisZone Code = "NoHintForThisZone"
	NodeHasNoZone     Code = "NodeHasNoZone"
	OnlyTerminating   Code = "OnlyTerminating"

	OnThisNode            Code = "OnThisNode"
	OnThisNodeTerminating Code = "OnThisNodeTerminating"
)

// Why a choice has no endpoints. NodeHasNoTopologyLabel is also a reason for the exclusion of an endpoint.
const (
	NoEndpoints            Code = "NoEndpoints"
	NoUsableEndpoints      Code = "NoUsableEndpoints"
	NoTopologyMatch        Code = "NoTopologyMatch"
	NodeHasNoTopologyLabel Code = "NodeHasNoTopologyLabel"
	NoneOnThisNode         Code = "NoneOnThisNode"
	ClusterChoiceUnused    Code = "ClusterChoiceUnused"
)

// Why an endpoint is excluded.
const (
	NotReady                   Code = "NotReady"
	TerminatingNotNeeded       Code = "TerminatingNotNeeded"
	OtherTopologyValue         Code = "OtherTopologyValue"
	EndpointHasNoNode          Code = "EndpointHasNoNode"
	EndpointNodeUnknown        Code = "EndpointNodeUnknown"
	EndpointHasNoTopologyLabel Code = "EndpointHasNoTopologyLabel"
	HintedElsewhere            Code = "HintedElsewhere"
	NotOnThisNode              Code = "NotOnThisNode"
	ShareBelowOneSlot          Code = "ShareBelowOneSlot"
	NotSelectedByPlan          Code = "NotSelectedByPlan"
)

// sentence is the text of a code.
type sentence struct {
	code Code
	text string
}

// sentences has a sentence in plain English for every code. {key}, {value} and {endpoint} stand for fields of a Reason.
// demotions.go builds those of demoted nodes.
var sentences = append([]sentence{
	{MatchedTopologyKey, "The ready endpoints that share this node's {key}, {value}, are used."},
	{MatchedTopologyKeyTerminating, "No ready endpoint matches a topology key, so the ones that share this node's {key}, {value}, " +
		"and still serve while terminating are used."},
	{MatchedAnyNode, "All ready endpoints are used because * is the first topology key that any of them matches."},
	{MatchedAnyNodeTerminating, "No endpoint is ready, so all that still serve while terminating are used: * is the first topology " +
		"key that any of them matches."},

	{WithinLoadBound, "All of this node's connections stay {there}: {endpoints} there, and the expected load of the busiest is " +
		"{busiest} times the mean; max-load is {limit}."},
	{Spillover, "{kept} of this node's connections stay {there}, and {rest} go to {next}: {endpoints} there for {demand} of " +
		"the demand. Without the load bound, the expected load of each would be {unbounded} times the mean; max-load is {limit}."},
	{NoNearEndpoints, "{noEndpoint}; all of this node's connections go to {next}, most to the least loaded endpoints."},
	{LoadBoundExceeded, "The expected load of the busiest endpoint {there} is {busiest} times the mean, more than max-load ({limit}): the " +
		"keys allow this node no others, because they do not end with *."},
	{NodesUnknown, "The endpoints that share this node's {key}, {value}, are used, whatever their expected load: the Nodes are not " +
		"known yet, and max-load cannot be applied without them."},

	{HintedForThisNode, "The endpoints that the EndpointSlices hint for this node, {value}, are used."},
	{HintedForThisZone, "The endpoints that the EndpointSlices hint for this node's zone, {value}, are used."},
	{HintedForThisZoneNotNode, "The endpoints that the EndpointSlices hint for this node's zone, {value}, are used; " +
		"no endpoint is hinted for the node itself."},
	{HintedForThisZoneNodeHintsIncomplete, "The endpoints that the EndpointSlices hint for this node's zone, {value}, are used; " +
		"hints for nodes are ignored because the ready endpoint {endpoint} has none."},

	{AllEndpoints, "All ready endpoints are used because the Service has neither topology keys nor hints."},
	{HintsIncomplete, "All ready endpoints are used: the {key} hints are ignored because the ready endpoint {endpoint} has none."},
	{NoHintForThisNode, "All ready endpoints are used: every one has a hint for nodes, and none names this node, {value}."},
	{NoHintForThisZone, "All ready endpoints are used: every one has a hint for zones, and none names this node's zone, {value}."},
	{NodeHasNoZone, "All ready endpoints are used: hints for zones are ignored because this node has no value for the label {key}."},
	{OnlyTerminating, "No endpoint is ready, so all that still serve while terminating are used."},

	{OnThisNode, "The ready endpoints on this node are used because {key} is Local."},
	{OnThisNodeTerminating, "The endpoints on this node that still serve while terminating are used because {key} is Local and " +
		"none on this node is ready."},

	{NoEndpoints, "The Service port has no endpoints."},
	{NoUsableEndpoints, "No endpoint is ready, and none still serves while terminating."},
	{NoTopologyMatch, "No usable endpoint matches a topology key: none shares this node's {key}, {value}, and the " +
		"keys do not end with *."},
	{NodeHasNoTopologyLabel, "No endpoint matches a topology key: this node has no label {key}, and the keys do not end with *."},
	{NoneOnThisNode, "{key} is Local, and no usable endpoint is on this node."},
	{ClusterChoiceUnused,
		"internalTrafficPolicy is Local and the port has no external frontend, so no traffic goes to other nodes."},

	{NotReady, "The endpoint is not ready."},
	{TerminatingNotNeeded, "The endpoint is terminating, and ready ones serve in its place."},
	{OtherTopologyValue, "The endpoint's {key} is {value}, which is not this node's."},
	{EndpointHasNoNode, "The EndpointSlice does not name the endpoint's node, so its {key} is unknown."},
	{EndpointNodeUnknown, "The endpoint runs on node {value}, which this node does not know, so its {key} is unknown."},
	{EndpointHasNoTopologyLabel, "The endpoint runs on node {value}, which has no label {key}."},
	{HintedElsewhere, "The endpoint's {key} hints name {value}, and so not this node."},
	{NotOnThisNode, "{key} is Local, and the endpoint is not on this node."},
	{ShareBelowOneSlot, "The endpoint's share of this node's connections is {kept}, less than one slot: it is rounded down here, and " +
		"up on other nodes."},
	{NotSelectedByPlan, "Other endpoints take all of this node's connections."},
}, demotionSentences()...)

// Sentence formats the reason in plain English. It returns an empty string for the zero Reason.
func (r Reason) Sentence() string {
	for i := range sentences {
		if sentences[i].code == r.Code {
			replacements := append(r.Load.placeholders(), "{there}", locationText(r.Key, r.Value), "{noEndpoint}", r.noEndpointsText(),
				"{key}", r.Key, "{value}", strconv.Quote(r.Value), "{endpoint}", r.Endpoint.String(), "{until}", r.untilText(),
				"{since}", r.sinceText())
			return strings.NewReplacer(replacements...).Replace(sentences[i].text)
		}
	}
	return string(r.Code)
}

// noEndpointsText returns the clause that no endpoint is near, or that this node has no label to compare.
func (r Reason) noEndpointsText() string {
	if r.Load != nil && r.Load.HasNoLabel {
		return "This node has no label " + r.Key
	}
	return "No endpoint is " + locationText(r.Key, r.Value)
}

// untilText formats the end of an evacuation, to follow "being evacuated". It is empty if there is no end.
func (r Reason) untilText() string {
	if r.Until == nil {
		return ""
	}
	return " until " + r.Until.UTC().Format("2006-01-02 15:04 UTC")
}

// sinceText formats when a node became unreachable, to follow "has not replied to this node". It is empty if unknown.
func (r Reason) sinceText() string {
	if r.Since.IsZero() {
		return ""
	}
	return " since " + r.Since.UTC().Format("2006-01-02 15:04:05 UTC")
}
