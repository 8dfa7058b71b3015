// SPDX-License-Identifier: Apache-2.0

package verb

// nowhere is a live.Console for a screen that is not shown: only its Result is used.
type nowhere struct{}

func (nowhere) Write(b []byte) (int, error)            { return len(b), nil }
func (nowhere) IsInteractive() bool                    { return false }
func (nowhere) HasColour() bool                        { return false }
func (nowhere) Size() (columns, lines int)             { return 0, 0 }
func (nowhere) Enter()                                 {}
func (nowhere) Read(func(byte))                        {}
func (nowhere) Restore()                               {}
func (nowhere) Divert(func(bool, string)) (end func()) { return func() {} }
