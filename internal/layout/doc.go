// SPDX-License-Identifier: Apache-2.0

// Package layout tests the rules for the layout of Go code:
//
//   - operators/<group>/<package> knows Inspektor Gadget's API: operators, and what reads or
//     feeds their data. The groups are in the order in which data passes (attach, decode,
//     judge, show, send), and none imports one behind it.
//   - internal/ knows neither Inspektor Gadget nor operators/. Only internal/ig, the adapter,
//     imports Inspektor Gadget, and nothing else in the programs imports the parts of it that
//     it does not document.
//   - cmd/ wires them together: nothing imports it.
//   - test/<group>/<suite> is imported by tests only, and a suite shares only what is in
//     test/support.
//   - No folder of these has more than 12 folders with packages.
//
// Import cycles are refused by the compiler.
package layout
