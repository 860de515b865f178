package conformance

import "testing"

// TestChannel is the checklist of the channel, line by line. README.md names the tests of the lines
// that are tested elsewhere.
func TestChannel(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	for _, l := range []line{
		{"8_zmq_filtering", strict, "", testFiltering},
		{"25_refusals", lenient, "", testRefusals},
		{"26_versions", lenient, "", testVersions},
		{"27_minimum_auth_version_3", strict, "", testMinimumVersion},
		{"27_minimum_auth_version_0", lenient, "", testLowVersions},
		{"28_outer_and_inner_id", lenient, "", testIDs},
		{"29_token_is_required", lenient, "", testToken},
		{"30_request_server_ttl", strict, "", testAge},
		{"30_no_ttl", lenient, "", testAgeless},
		{"31_claimed_id_leaves_no_file", lenient, "", testClaimedID},
		{"32_v2_sealed_with_session_key", lenient, "", testWrongSeal},
		{"33_auth_table", lenient, "", s.testSignIn},
		{"34_unknown_sig_algo", lenient, "", testSigAlgo},
		{"35_unknown_enc_algo", lenient, "", testEncAlgo},
		{"36_SHA224", lenient, "", testSHA224},
		{"37_garbled_token", lenient, "", testGarbledToken},
		{"38_CRLF_key", lenient, "", testKeyForms},
		{"39_master_sign_pubkey", open, "", testPubSig},
		{"40_autosign_stub", lenient, "", testStub},
		{"41_autosign_file", lenient, "", testAutosignFile},
		{"42_autosign_grains", lenient, "", testAutosignGrains},
		{"43_autoreject", lenient, "", testAutoreject},
		{"44_max_minions", crowded, "", testMaxMinions},
		{"45_open_mode", open, "", testOpenMode},
	} {
		s.each(l)
	}
	t.Run("46_pending_then_accepted", s.testPending)
	t.Run("47_foreign_master_key", s.testForeignMasterKey)
	t.Run("48_verify_master_pubkey_sign", s.testVerify)
	t.Run("50_releases", s.testReleases)
	t.Run("50_legacy_releases", s.testLegacyReleases)
	// before the restart, because the events of the start are checked
	t.Run("62_order_at_start", s.testStartOrder)
	t.Run("51_restart", s.testRestart)
	t.Run("52_session_key_replaced", s.testSessionReplaced)
	t.Run("53_AES_key_rotated", s.testRotation)
	t.Run("54_deleted_key", s.testDeletedKey)
	t.Run("54_drop_file", s.testDropFile)
	t.Run("49_rejected", s.testRejected) // late, because they take long to end
	t.Run("55_three_masters", s.testCluster)
	for _, l := range []line{
		{"56_nonce_in_the_reply", lenient, "", testNonces},
		{"57_pillar_replies", lenient, "", testPillarReplies},
		{"58_5_MB", lenient, "", testLarge},
		{"60_no_serial", strict, "", testSerial},
	} {
		s.each(l)
	}
	t.Run("59_signed_publications", s.testSignedPublications)
	t.Run("61_zmq_filtering_minions", s.testFilteringMinions)
	t.Run("62_replies_at_start", s.testStartReplies)
	t.Run("63_minion_ping", s.testPings)
	t.Run("64_master_alive_interval", s.testAlive)
	t.Run("65_cut_of_2_s", s.testCut)
	t.Run("66_failover_and_back", s.testFailover)
	t.Run("67_200_minions_at_once", s.testCrowd)
	s.each(line{"bad_input", target, ours, testBadInput})
	s.each(line{"69_foreign_greeting", lenient, ours, testForeignGreeting})
}
