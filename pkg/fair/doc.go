// Package fair divides what Namespaces share, so that none has less because another wants much. Nothing here depends on
// chance or on the order of a map: who is given the same gets the same.
//
// There are three cases:
//
//   - Order chooses which of many get a place, all at once. It is max-min fair: see there.
//   - Turns are for what all get in the end, one after the other. This is start-time fair queueing (Goyal, Vin, Cheng 1996).
//   - Places are for what is wanted later, when there may be no place any more.
package fair
