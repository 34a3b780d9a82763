package convert

import (
	"fmt"
	"reflect"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// DemandLeases are the Leases of publishers of ServiceDemands, in a folder; their values are when they were renewed.
// Where there is an API server, that one Lease is read by its name.
var DemandLeases = &Kind{
	Name: "Lease", Group: coordinationv1.SchemeGroupVersion, Resource: "leases", OnlyName: servicedemand.LeaseName,
	New: func() Object { return &coordinationv1.Lease{} },
	Convert: func(object Object, _ View) (any, field.ErrorList) {
		return renewalOf(object.(*coordinationv1.Lease)), nil
	},
	IsSame: reflect.DeepEqual,
}

// DemandLease is what somebody who looks once finds out about the publisher's Lease. The zero value: nothing.
type DemandLease struct {
	Namespace string
	Found     LeaseFound
	// Renewed is when it was renewed last; zero: never. Now is the time of the look: by the own clock at an API server, and
	// in a folder the newest time that its objects tell. A folder may be read long after it was written, and what holds
	// in it must not depend on when: proxies heeded what was published if it was not too old then.
	Renewed, Now time.Time
	IsOfFolder   bool
}

// LeaseFound says what became of a look for a Lease.
type LeaseFound int

// What may become of it.
const (
	LeaseNotThere  LeaseFound = iota // it is not among the objects that are known, which proves nothing
	LeaseForbidden                   // it may not be read
	LeaseMissing                     // the API server has none
	LeaseRead
)

// ReadDemandLease is a Lease that was read at a time.
func ReadDemandLease(lease *coordinationv1.Lease, now time.Time) DemandLease {
	return DemandLease{Namespace: lease.Namespace, Found: LeaseRead, Renewed: renewalOf(lease), Now: now}
}

func renewalOf(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// State returns whether measured demand counts: as proxies decide that, which can read the Lease. Demand of unknown age
// is taken as current.
func (l DemandLease) State() model.DemandState {
	switch {
	case l.Found == LeaseNotThere, l.Found == LeaseForbidden:
		return model.DemandCounts
	case l.Found == LeaseMissing, l.Renewed.IsZero():
		return model.DemandUnpublished
	case l.age() >= servicedemand.GoodFor:
		return model.DemandStale
	}
	return model.DemandCounts
}

func (l DemandLease) age() time.Duration { return max(0, l.Now.Sub(l.Renewed)) }

// Sentence says why measured demand does not count, or why its age is not known; empty if it is known to count.
func (l DemandLease) Sentence() string {
	name := model.ObjectName{Namespace: l.Namespace, Name: servicedemand.LeaseName}
	const assumed = "so proxies plan with the assumed demand."
	switch l.Found {
	case LeaseNotThere:
		from := "-A | grep -w " + name.Name
		if l.Namespace != "" {
			from = "-n " + l.Namespace + " " + name.Name + " -o yaml"
		}
		return "The age of the ServiceDemands is not known, so they are taken as current: the Lease that tells it is not among the objects " +
			"('kubectl get lease " + from + "' prints it)."
	case LeaseForbidden:
		return fmt.Sprintf("The age of the ServiceDemands is not known, so they are taken as current: the Lease %s may not be read, "+
			"which takes the verb get.", name)
	case LeaseMissing, LeaseRead:
	}
	switch when := "ago"; l.State() {
	case model.DemandUnknown, model.DemandCounts:
	case model.DemandUnpublished:
		return fmt.Sprintf("Nobody publishes ServiceDemands: the Lease %s does not exist, or was never renewed, %s", name, assumed)
	case model.DemandStale:
		if l.IsOfFolder {
			when = "before these objects were written"
		}
		return fmt.Sprintf("The ServiceDemands were last confirmed %s %s (Lease %s), and count for %s, %s",
			inWords(l.age()), when, name, inWords(servicedemand.GoodFor), assumed)
	}
	return ""
}

// inWords writes an age of an hour and more, to a minute, an hour, or a day.
func inWords(age time.Duration) string {
	number, unit := int(age/time.Minute), "minute"
	switch hours := int(age / time.Hour); {
	case hours >= 48:
		number, unit = hours/24, "day"
	case hours >= 2, age == time.Hour:
		number, unit = hours, "hour"
	}
	return printable.Count(number, unit)
}

// ToldAt returns the newest time that an object tells, by which a folder was not written before; zero if it tells none.
func ToldAt(object Object) (newest time.Time) {
	tell := func(at time.Time) {
		if at.After(newest) {
			newest = at
		}
	}
	switch object := object.(type) {
	case *corev1.Node:
		for i := range object.Status.Conditions {
			tell(object.Status.Conditions[i].LastHeartbeatTime.Time)
		}
	case *coordinationv1.Lease:
		tell(renewalOf(object))
	case *servicedemand.ServiceDemand:
		tell(object.Since.Time)
	}
	return newest
}
