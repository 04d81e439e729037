package engine

// announce reports the decisions that are about to be written (BeforeWrite). Between a write
// and the OnTurn that reports it, the kernel already forwards packets by the new decisions.
// An observer that reads the state of those packets in the kernel must know them before.
func (e *Engine) announce() {
	if e.p.BeforeWrite != nil && len(e.turn.Decided) > 0 {
		e.p.BeforeWrite(e.turn.Decided)
	}
}
