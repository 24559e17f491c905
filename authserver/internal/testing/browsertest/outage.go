package browsertest

// CutPostgres takes the database away from everybody, until the returned function gives it back.
func (s *Server) CutPostgres() (restore func()) {
	s.t.Helper()
	return s.Fixture.Database.Cut(s.t)
}
