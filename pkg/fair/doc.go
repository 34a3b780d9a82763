// Package fair divides a shared capacity among Namespaces, so that high demand of one does not reduce the share of
// another. The result depends neither on chance nor on the order of a map: equal inputs give equal results.
//
// There are three cases:
//
//   - Order chooses which of many items get a share, all at once. It is max-min fair: see there.
//   - Queue and Schedule order work that is all done eventually. This is start-time fair queueing (Goyal, Vin,
//     Cheng 1996).
//   - Quota is for requests that arrive over time, when no slot may be free.
package fair
