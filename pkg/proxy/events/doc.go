// Package events tells users what they should know, as Kubernetes Events (events.k8s.io/v1) on the object that it is about: `kubectl
// describe` shows them where somebody looks who wonders why a Service does not work.
//
// An Event is told at best: Tell never blocks and never fails. What cannot be told because the API server is away or busy waits, however
// long that takes; of what waits there may be 100, and what is too much is dropped and counted. The log holds everything. The limits
// are there for the API server, which a thousand proxies share:
//
//   - A proxy tries to create at most 10 Events at once and then one every 10 seconds, so that the proxies of 1,000 nodes together stay
//     below 100 requests a second, whatever goes wrong. One whose tries fail asks ever more rarely, down to once a minute or two.
//   - The same sentence is told once an hour, which is how long the API server keeps an Event.
//   - What is the same on every node has the same name on every node: the first proxy creates the Event and all others are answered
//     that it exists. They come at different times, because each waits up to 10 seconds first.
//   - Nothing is read, and nothing is updated: the only permission that is needed is to create events.
//
// Namespaces take turns, so that the owner of a thousand broken objects does not silence anybody else.
package events
