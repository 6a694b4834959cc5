"""The promises of approvals, and which test shows which reported case.

H01 test_wrong_people (every door, every wrong person; what is not visible is not found)
H04, H23 test_decide (shown is signed is run; a bad edit decides nothing), test_attacks
H07 test_decide (a no runs nothing), test_races
H09 test_bulk (1,500 in steps, new ones come in)
H10, H11 test_decide, test_races (the second is told; equal repeats), test_browser (an old page)
H12 test_links (scanner, crawler)
H13, H15 test_time (expired, nobody answered; by the system)
H16 test_visible, test_attacks, test_browser
H17 test_admin (secrets are shown nowhere)
H18 test_record (no decision without its record), test_decide (rights are kept)
H19, H24 test_rules (what changed since the yes), test_decide (the requester)
H20 test_attacks (arguments changed in the database)
H25 test_notifications (once per recipient; killed senders)
H26 test_time (what became of it), test_browser
"""
