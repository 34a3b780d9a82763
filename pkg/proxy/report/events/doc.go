// Package events reports to users, as Kubernetes Events (events.k8s.io/v1) on the object concerned: `kubectl describe`
// of a Service that does not work shows them.
//
// Reporting is best effort: Report never blocks and never fails. While the API server is unavailable or busy, events
// wait in a queue, for any time. The queue holds 100; further events are dropped and counted. The log has all of them.
// The limits protect the API server, which a thousand proxies share:
//
//   - A proxy tries to create at most 10 Events at once and then one every 10 seconds, so that the proxies of 1,000
//     nodes together stay below 100 requests a second in any failure. After failures the pauses grow to a minute
//     or two.
//   - A note is reported once an hour, which is how long the API server keeps an Event.
//   - An Event that is the same on every node has the same name on every node: the first proxy creates it, and the
//     others get "already exists". Each proxy waits up to 10 seconds first, so that their requests are spread.
//   - Nothing is read or updated: the only permission that is needed is to create events.
//
// The queue is fair to namespaces, so that the user of a thousand broken objects does not displace the Events of
// others.
//
// client-go's tools/record does not have these properties (tried with v0.36.3 and a SpamKeyFunc for each namespace):
// its single queue precedes its limits, so many events in one namespace displace those of others; events beyond queue or
// limits are neither counted nor logged; and an event is dropped after 12 attempts, which take two minutes and delay all
// others.
//
// Where to make a change: texts.go has the texts of findings, whose codes are in pkg/model/finding.go, and of all other
// Events. recorder.go and queue.go limit how often they are created.
package events
