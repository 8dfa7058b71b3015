// SPDX-License-Identifier: Apache-2.0

package stack

// User is the innermost Python frame of the program's own code, which is the line that a
// person can change; Self where there is none.
func (s Stack) User() Frame {
	for _, f := range s {
		if f.Kind == KindPython && !f.Library {
			return f
		}
	}
	return s.Self()
}

// Own is the stack without what the frame of User calls: libraries, and the driver. It shares the
// stack's memory.
func (s Stack) Own() Stack {
	own := s.User()
	for i, f := range s {
		if f == own {
			return s[i:]
		}
	}
	return s
}

// Where is how a person reads where a stack ends: the program's own line, and behind it the
// innermost one where that is a library's:
// `Trainer.load_batch (train.py:18), in Condition.wait (threading.py:327)`.
func (s Stack) Where() string { return Where(s.User().Label(), s.Self().Label()) }

// Where is the same for labels.
func Where(user, frame string) string {
	switch user {
	case frame, "":
		return frame
	}
	return user + ", in " + frame
}

// MarkInside marks the Python frames inside of the program's own line, by its label, as a
// library's, for who has a text of frames and that. The stack is the caller's.
func (s Stack) MarkInside(user string) {
	for i := range s {
		if s[i].Label() != user {
			continue
		}
		s[i].Library = false
		for j := range s[:i] {
			s[j].Library = s[j].Kind == KindPython
		}
		return
	}
}
