// Package events reports to users what they should know, as Kubernetes Events (events.k8s.io/v1) on the object
// concerned: `kubectl describe` shows them to a user who looks at a Service that does not work.
//
// Reporting is best effort: Report never blocks and never fails. While the API server is away or busy, events wait,
// however long that takes. At most 100 wait; more are dropped and counted. The log has everything. The limits protect
// the API server, which a thousand proxies share:
//
//   - A proxy tries to create at most 10 Events at once and then one every 10 seconds, so that the proxies of 1,000
//     nodes together stay below 100 requests a second, whatever goes wrong. After failures the pauses grow to a minute
//     or two.
//   - A sentence is reported once an hour, which is how long the API server keeps an Event.
//   - An Event that is the same on every node has the same name on every node: the first proxy creates it, and the API
//     server answers the others that it exists. Each proxy waits up to 10 seconds first, so that they do not
//     ask at the same time.
//   - Nothing is read or updated: the only permission that is needed is to create events.
//
// Namespaces take turns, so that the owner of a thousand broken objects does not silence others.
//
// client-go's tools/record cannot keep these promises (tried with v0.36.3 and a SpamKeyFunc for each namespace): its
// one queue is in front of its limits, so that a flood in one namespace displaces the events of others; what exceeds
// queue or limits is neither counted nor logged; and an event is given up after 12 tries, which take two minutes and
// hold up all others.
package events
