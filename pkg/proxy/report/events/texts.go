package events

import (
	"fmt"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Texts are the texts for findings with one code, in addition to the sentence of each finding.
type Texts struct {
	// LogStart is the log message when a finding starts, and LogEnd the one when it ends.
	LogStart, LogEnd string
	// Action is what the proxy did, in one CamelCase word.
	Action string
	// NotePrefix is the start of an Event that lists all findings of an object. If it is empty, each finding has an Event
	// of its own.
	NotePrefix string
}

var texts = map[model.FindingCode]Texts{
	model.Invalid: {
		LogStart: "invalid object ignored; its last known good version, if any, stays active", Action: "Refuse",
		NotePrefix: "Nodes keep the last known good version of this object, if they have one: ",
	},
	model.ValueIgnored: {
		LogStart: "an invalid value is ignored; the rest of the object is active", Action: "Ignore",
		NotePrefix: "The rest of this object is active, without an invalid value: ",
	},
	model.PartiallyIgnored: {
		LogStart: "a part of an object is ignored; the rest is served", Action: "Skip", NotePrefix: "The rest of this object is served: ",
	},
	"TopologyKeysIgnored": {
		LogStart: "an annotation is ignored", Action: "Ignore", NotePrefix: "The Service is served as if it had no topology keys: ",
	},
	model.FrontendConflict:       {LogStart: "a frontend belongs to another Service", Action: "Skip"},
	model.FrontendIsAPIServer:    {LogStart: "a frontend is an address of the API server", Action: "Skip"},
	model.FrontendIsProbed:       {LogStart: "a frontend is a probe target of nodes", Action: "Skip"},
	model.SessionAffinityIgnored: {LogStart: "session affinity is ignored", Action: "Skip"},
	model.FailedToProgram: {
		LogStart: "the kernel rejected a Service; retrying it; all others are served",
		LogEnd:   "a Service that the kernel had rejected is applied or deleted", Action: "Program",
	},
	model.HealthCheckListenFailed: {
		LogStart: "failed to serve a health check; retrying", LogEnd: "a health check is served again or deleted", Action: "Listen",
	},
	model.LocalhostNodePortNotServed: {
		LogStart: "failed to serve a node port on loopback; retrying",
		LogEnd:   "a node port is served on loopback again or deleted", Action: "Listen",
	},
}

// TextsOf returns the texts for a code.
func TextsOf(code model.FindingCode) Texts {
	result, known := texts[code]
	if !known && code.IsAnnotation() {
		result = Texts{LogStart: "an annotation is ignored", Action: "Ignore", NotePrefix: "An annotation is ignored: "}
	}
	if result.LogEnd == "" {
		result.LogEnd = "resolved"
	}
	return result
}

// Findings returns the Events for a node's findings about one object; all have the same code.
func Findings(object Reference, node string, found []model.Finding) []Event {
	codeTexts := TextsOf(found[0].Code)
	sentences := make([]string, len(found))
	for i := range found {
		sentences[i] = found[i].Sentence()
	}
	if codeTexts.NotePrefix != "" {
		sentences = []string{codeTexts.NotePrefix + strings.Join(sentences, "; ")}
	}
	events := make([]Event, len(sentences))
	for i, sentence := range sentences {
		events[i] = Event{
			Regarding: object, Warning: true, Reason: string(found[0].Code), Action: codeTexts.Action, Local: found[0].Local, Note: sentence,
		}
		if found[0].Local {
			events[i].Note = "On node " + node + ": " + sentence
		}
	}
	return events
}

// ExternalChange returns the Event for an external modification of our tables on a node. A program that repeats it has
// another process ID each time, but is still reported only once an hour.
func ExternalChange(node, process string, pid uint32) Event {
	return Event{
		Regarding: Node(node), Warning: true, Reason: "TablesChanged", Action: "Repair", Local: true, Topic: process,
		Note: fmt.Sprintf("Process %q (pid %d) changed the nftables tables of the service proxy; repairing them: "+
			"connections may have failed until then", process, pid),
	}
}

// OtherProxy returns the Event for another service proxy that translates connections on a node, and what to do about
// it.
func OtherProxy(node, message, remedy string) Event {
	return Event{
		Regarding: Node(node), Warning: true, Reason: "OtherServiceProxy", Action: "Detect", Local: true,
		Note: message + "; " + remedy,
	}
}

// Evacuated returns the Event for the start of a node's evacuation; nil means that the evacuation ended.
func Evacuated(node string, evacuation *model.Demotion) Event {
	if evacuation == nil {
		return Event{
			Regarding: Node(node), Reason: "EvacuationEnded", Action: "Evacuate", Local: true,
			Note: "The endpoints on this node get new connections again",
		}
	}
	return Event{
		Regarding: Node(node), Reason: "Evacuating", Action: "Evacuate", Local: true,
		Note: "The endpoints on this node get no new connections where others may serve in their place, until " + evacuation.EndText(),
	}
}

// Partitioned returns the Event for a node that is Ready but does not reply to others. All proxies that detect this
// share one Event.
func Partitioned(node string) Event {
	return Event{
		Regarding: Node(node), Warning: true, Reason: "UnreachableFromNodes", Action: "Detect",
		Note: "Other nodes get no reply from this one, although it is Ready: the network between them is partitioned, or the port of the " +
			"service proxy's /healthz is closed; proxy status lists on each node which ones do not reply",
	}
}

// Started returns the Event for the start of the proxy on a node. The reason is kube-proxy's.
func Started(node, version string) Event {
	return Event{
		Regarding: Node(node), Reason: "Starting", Action: "StartProxy", Local: true,
		Note: "Vicinity " + version + " starts to program this node's Services",
	}
}
