package events

import (
	"fmt"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Refused says that an object cannot be right.
func Refused(object Reference, reason string) Event {
	return Event{
		Regarding: object, Warning: true, Reason: "Refused", Action: "Refuse",
		Note: "Nodes keep to the last good version of this object, if they have seen one: " + reason,
	}
}

// Ignored says that a part of an object, such as the value of a label, cannot be read.
func Ignored(object Reference, reason string) Event {
	return Event{
		Regarding: object, Warning: true, Reason: "ValueIgnored", Action: "Ignore",
		Note: "The rest of this object is in force, without what cannot be read: " + reason,
	}
}

// RefusedByKernel says that the kernel of a node does not take a Service.
func RefusedByKernel(service Reference, node string, inForce bool, reason error) Event {
	note := "Connections to this Service fail on node %s, whose kernel refuses it; it is tried again: %s"
	if inForce {
		note = "Node %s goes on with an earlier version of this Service, because its kernel refuses this one; it is tried again: %s"
	}
	return Event{
		Regarding: service, Warning: true, Reason: "RefusedByKernel", Action: "Program", Local: true, Note: fmt.Sprintf(note, node, reason),
	}
}

// LeftOut says that parts of an object cannot be served. Each part is a sentence that names it and says why.
func LeftOut(object Reference, parts []string) Event {
	return Event{
		Regarding: object, Warning: true, Reason: "PartsLeftOut", Action: "LeaveOut",
		Note: "The rest of this object is served: " + strings.Join(parts, "; "),
	}
}

// TopologyIgnored says why an annotation about a Service's topology has no effect.
func TopologyIgnored(service Reference, ignored policy.Ignored) Event {
	event := Event{
		Regarding: service, Warning: true, Reason: "TopologyKeysIgnored", Action: "Ignore",
		Note: "The Service is served as if it had no topology keys: " + ignored.Reason,
	}
	if ignored.Annotation != policy.TopologyKeysAnnotation {
		event.Reason, event.Note = "LoadBoundIgnored", "The annotation "+ignored.Annotation+" is ignored: "+ignored.Reason
	}
	return event
}

// FrontendConflict says that a Service wants an address and port that another one owns.
func FrontendConflict(service Reference, frontend model.Frontend, owner model.ObjectName) Event {
	return Event{
		Regarding: service, Warning: true, Reason: "FrontendConflict", Action: "LeaveOut",
		Note: fmt.Sprintf("%s belongs to Service %s, which keeps it until it lets go; connections to it do not reach this Service",
			frontend, owner),
	}
}

// FrontendIsAPIServer says that a Service wants an address and port at which a node reaches the API server.
func FrontendIsAPIServer(service Reference, node string, frontend model.Frontend) Event {
	return Event{
		Regarding: service, Warning: true, Reason: "FrontendIsAPIServer", Action: "LeaveOut", Local: true,
		Note: fmt.Sprintf("Node %s reaches the API server at %s; connections to it do not reach this Service", node, frontend),
	}
}

// AffinityIgnored says that a node has no number left for a Service with session affinity.
func AffinityIgnored(service Reference, node string) Event {
	return Event{
		Regarding: service, Warning: true, Reason: "SessionAffinityIgnored", Action: "LeaveOut", Local: true,
		Note: fmt.Sprintf("Node %s serves this Service without session affinity: too many Services have it and more than "+
			"256 endpoints each (4,096 Services up to 4,096 endpoints, 256 beyond)", node),
	}
}

// HealthCheckNotServed says why load balancers get no answer at a Service's healthCheckNodePort on a node. Reason and
// action are kube-proxy's.
func HealthCheckNotServed(service Reference, node string, reason error) Event {
	return Event{
		Regarding: service, Warning: true, Reason: "FailedToStartServiceHealthcheck", Action: "Listen", Local: true,
		Note: fmt.Sprintf("Load balancers take node %s for one without endpoints of this Service, and it tries again: %s", node, reason),
	}
}

// ForeignChange says that another process changed our tables on a node. A program that does so repeatedly has another
// process ID each time, and is reported once an hour all the same.
func ForeignChange(node, process string, pid uint32) Event {
	return Event{
		Regarding: Node(node), Warning: true, Reason: "TablesChanged", Action: "Repair", Local: true, Topic: process,
		Note: fmt.Sprintf("Process %q (pid %d) changed the nftables tables of the service proxy, which repairs them: "+
			"connections may have failed meanwhile", process, pid),
	}
}

// OtherProxy says that another service proxy translates connections on a node, and what to do about it.
func OtherProxy(node, says, do string) Event {
	return Event{
		Regarding: Node(node), Warning: true, Reason: "OtherServiceProxy", Action: "Look", Local: true,
		Note: says + "; " + do,
	}
}

// Evacuated says that the evacuation of a node begins; nil: that it is over.
func Evacuated(node string, evacuation *model.Evacuation) Event {
	if evacuation == nil {
		return Event{
			Regarding: Node(node), Reason: "EvacuationEnded", Action: "Evacuate", Local: true,
			Note: "The endpoints on this node get new connections again",
		}
	}
	return Event{
		Regarding: Node(node), Reason: "Evacuating", Action: "Evacuate", Local: true,
		Note: "The endpoints on this node get no new connections where others may serve in their place, until " + evacuation.End(),
	}
}

// Started says that the proxy begins its work on a node. The reason is kube-proxy's.
func Started(node, version string) Event {
	return Event{
		Regarding: Node(node), Reason: "Starting", Action: "StartProxy", Local: true,
		Note: "Vicinity " + version + " starts to program this node's Services",
	}
}
